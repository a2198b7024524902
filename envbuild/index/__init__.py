"""The client of package indexes: this machine's pip configuration, for us, for pip and uv, and for builds."""
