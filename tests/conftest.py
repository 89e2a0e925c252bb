"""What every test shares: hypothesis without deadlines, and the same examples each time, so that red means a change;
and the tensor shapes in the library's annotations checked at run time (jaxtyping and beartype)."""

import os
import signal

from hypothesis import HealthCheck, settings
from jaxtyping import install_import_hook

from tests import shapes

# A suite that is started in the background ignores Ctrl-C, and so would every process that a test interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Ray gives its workers the lowest priority: beside other tests, or anything else on the machine, they hardly move.
os.environ.setdefault("RAY_worker_niceness", "0")

ROOMS = ["esgd.engines", "esgd.genome", "esgd.operators", "esgd.population", "esgd.protocols"]
install_import_hook(ROOMS, f"{shapes.__name__}.checked")

# A busy machine is slow at everything, at drawing examples too.
settings.register_profile("esgd", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("esgd")
