"""Routes of worktrees: start ralphs in new ones, look, remove one."""

import json
from typing import Annotated

from fastapi import Query, Response

from ralphd.api import bodies, schemas
from ralphd.api.bodies import KeepQuery, RalphName
from ralphd.api.context import TheHost, json_bytes, routes
from ralphd.api.schemas import answers
from ralphd.daemon.registration import Registration
from ralphd.daemon.trees.plan import WorktreeOrder

router = routes("/v1/trees", "trees")


@router.post("", status_code=201, responses=answers(schemas.RalphsView, 201))
async def start_in_worktrees(host: TheHost, asked: bodies.WorktreeRequest) -> Response:
    """Make worktrees, and register and start a ralph in each.

    What is refused leaves no worktree behind, except when `[ralph] setup` fails in one. The reply comes when
    the setup has ended.
    """
    registration = Registration(**asked.model_dump(include={*bodies.RegisterRequest.model_fields}))
    order = WorktreeOrder(registration, asked.branch, asked.from_ref, tuple(asked.tasks), asked.count)
    return json_bytes(b'{"ralphs":[' + b",".join(await host.start_in_worktrees(order)) + b"]}", 201)


@router.get("", responses=answers(schemas.WorktreesView))
async def list_worktrees(host: TheHost) -> Response:
    """Every worktree of ralphd, with its size and what it has that its target has not."""
    return json_bytes(json.dumps({"trees": await host.trees.listed()}).encode())


@router.delete("/{name}", responses=answers(schemas.RemovedWorktreeView))
async def remove_worktree(host: TheHost, name: RalphName, query: Annotated[KeepQuery, Query()]) -> Response:
    """Remove a worktree, and forget its ralph.

    Refused (409, `wrong-state`) while the ralph runs, and while the worktree has uncommitted files or commits
    that no other branch and no remote has. With `keep` these are saved under `refs/ralph/trees/` first.
    """
    return json_bytes(json.dumps(await host.trees.remove(name, keep=query.keep)).encode())
