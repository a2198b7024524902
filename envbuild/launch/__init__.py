"""Renders the scripts and manifests with which launchers start the smoke test on several machines.

The templates are in images/launchers/.
"""
