"""Publishers' datasets: where they are, how to come by them, and readers that name the file at fault."""

from esgd_paper.data.an4 import AN4, Speech, Utterance, an4
from esgd_paper.data.cifar10 import CIFAR10, Images, cifar10
from esgd_paper.data.fetch import Remote, fetch
from esgd_paper.data.folders import Dataset, data_folder
from esgd_paper.data.frames import Frames, frames_kaldi, frames_npz
from esgd_paper.data.ptb import PTB, Text, ptb

__all__ = [
    "AN4",
    "CIFAR10",
    "PTB",
    "Dataset",
    "Frames",
    "Images",
    "Remote",
    "Speech",
    "Text",
    "Utterance",
    "an4",
    "cifar10",
    "data_folder",
    "fetch",
    "frames_kaldi",
    "frames_npz",
    "ptb",
]
