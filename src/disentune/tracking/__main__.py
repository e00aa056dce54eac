"""`python -m disentune.tracking RUN`: the process that streams a run to Weights & Biases."""

import sys
import traceback

from disentune.environment import without_secrets
from disentune.errors import CRASHED
from disentune.tracking.sending import main

try:
    main()
except Exception:  # standard output is the run's wandb.log
    print(without_secrets(traceback.format_exc()), flush=True)  # noqa: T201
    sys.exit(CRASHED)
