"""Tests import their fakes by name, and use one thread each."""

import signal
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
torch.set_num_threads(1)

# Under nohup, processes that a test starts would inherit an ignored SIGHUP.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
