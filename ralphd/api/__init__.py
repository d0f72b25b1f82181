"""The HTTP API on a Unix socket."""

from pydantic import BaseModel

# Views, and FastAPI's own models, are built when one is first used: 1.5 MB and 40 ms less at the start.
BaseModel.model_config["defer_build"] = True
