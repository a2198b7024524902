"""The client of package indexes. It uses this machine's pip configuration, and passes this configuration on to pip, uv and
builds."""
