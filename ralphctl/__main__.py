"""``python -m ralphctl``."""

import sys

from ralphctl.main import main

sys.exit(main())
