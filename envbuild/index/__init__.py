"""The client of package indexes. It uses this machine's pip configuration and passes it on to pip, uv and builds."""
