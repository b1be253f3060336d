"""Puts the recorder into every Python process below the stand-in for nsys, as nsys injects its own library."""

import atexit
import os
import sys
from pathlib import Path

_records = os.environ.get("NSYS_DOUBLE_RECORDS")
if _records:
    _root = str(Path(__file__).resolve().parents[3])
    sys.path.insert(0, _root)
    try:
        from harness.collectors.recorder import Recorder
    except ImportError:  # an environment without nvtx: nothing in it can make a range
        pass
    else:
        _recorder = Recorder(Path(_records) / f"{os.getpid()}.sqlite", rank=int(os.environ.get("RANK", "-1")))
        _recorder.install()
        atexit.register(_recorder.close)
    finally:
        sys.path.remove(_root)
