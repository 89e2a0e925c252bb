"""Watch: a local page that follows runs while they go on, and afterwards."""

from esgd.watch.followed import Followed
from esgd.watch.runs import Runs
from esgd.watch.server import ServerAddress, open_server

__all__ = ["Followed", "Runs", "ServerAddress", "open_server"]
