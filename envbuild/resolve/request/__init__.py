"""What was asked for: names, versions and hardware in words become a request."""
