"""Finds the name of the network interface with a given address, because NCCL and Gloo need the name."""
from __future__ import absolute_import, division, print_function

import fcntl
import io
import socket
import struct

_ADDRESS_OF = 0x8915        # SIOCGIFADDR


def of(address):
    """Return the name of the interface with this IPv4 address, such as 'eth0'; '' if no interface has it."""
    return next((name for name in names() if address_of(name) == address), '')


def names():
    """All interfaces of this network namespace."""
    try:
        with io.open('/proc/net/dev', encoding='ascii', errors='replace') as stream:
            return [line.split(':')[0].strip() for line in stream.readlines()[2:]]
    except (IOError, OSError):
        return []


def address_of(name):
    """Return the IPv4 address of an interface; '' if it has none."""
    with_name = struct.pack('256s', name.encode('ascii', 'replace')[:15])
    probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        return socket.inet_ntoa(fcntl.ioctl(probe.fileno(), _ADDRESS_OF, with_name)[20:24])
    except (IOError, OSError):
        return ''
    finally:
        probe.close()
