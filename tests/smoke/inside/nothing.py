"""An adapter that ends at once: what is told of the machine is told before. Runs inside the guest."""
from __future__ import absolute_import, division, print_function

from .numpy_ import Adapter as Healthy


class Adapter(Healthy):
    name = 'nothing'

    def setup(self, ctx):
        raise ImportError('there is nothing to import')
