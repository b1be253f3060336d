"""What `import harness` offers: `__init__.py` imports `harness.frames`, and so pandas, when one of these is used."""

from harness.frames import DuelFrames as DuelFrames
from harness.frames import RunFrames as RunFrames
from harness.frames import TraceFrames as TraceFrames
from harness.frames import load_duel as load_duel
from harness.frames import load_run as load_run
from harness.frames import load_trace as load_trace

__version__: str
