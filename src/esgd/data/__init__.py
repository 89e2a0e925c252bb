"""Publishers' datasets: where they are, how to come by them, and readers that name the file at fault."""

from esgd.data.an4 import Speech, Utterance, an4
from esgd.data.catalogue import KNOWN, download
from esgd.data.cifar10 import Images, cifar10
from esgd.data.fetch import Remote, fetch
from esgd.data.frames import Frames, frames_kaldi, frames_npz
from esgd.data.places import data_folder
from esgd.data.ptb import Text, ptb

__all__ = [
    "KNOWN",
    "Frames",
    "Images",
    "Remote",
    "Speech",
    "Text",
    "Utterance",
    "an4",
    "cifar10",
    "data_folder",
    "download",
    "fetch",
    "frames_kaldi",
    "frames_npz",
    "ptb",
]
