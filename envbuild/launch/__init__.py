"""Run on several machines: render scripts and manifests for launchers, from the data in images/launchers/."""
