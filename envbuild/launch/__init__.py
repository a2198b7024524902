"""Runs on several machines: renders scripts and manifests for launchers from the templates in images/launchers/."""
