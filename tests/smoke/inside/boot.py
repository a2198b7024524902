"""Make the guest importable as `envbuild_smoke`, as its own __main__ does. ENVBUILD_SMOKE names the folder of the guest."""
from __future__ import absolute_import, division, print_function

import os
import sys
import types

package = types.ModuleType('envbuild_smoke')
package.__path__ = [os.environ['ENVBUILD_SMOKE']]
sys.modules['envbuild_smoke'] = package
