"""A lease as its holder sees it: claim, renew, move with each push, release, or be fenced.

NATS has the key, which says who should try; git has the ref, which says who may write. A refusal by NATS is
only a reason to look; a ref of another host is the end. What had no answer is read before the next try.
"""

from dataclasses import replace

from ralphd.core.fleet import lease_model
from ralphd.core.fleet.lease_model import LeaseHold, LeaseNews, LeaseOrder, LeaseStep, Link, Stage, WriteKey
from ralphd.core.fleet.model import HostName, Item, Lease


def next_token(*known: int) -> int:
    """Return a token that is larger than those of the key, the ref and the item: none of them may go back."""
    return 1 + max((each for each in known if each < 2**52), default=0)  # no claim can have reached more


def is_claimable(key: Lease | None, ref: lease_model.RefSeen, host: HostName) -> bool:
    """Whether a host may claim without a takeover: nobody has the branch, or this host has."""
    return (not ref.sha or ref.lease is not None) and all(
        each is None or each.host in (lease_model.NOBODY, host) for each in (key, ref.lease)
    )


def begin_claim(
    item: Item, host: HostName, boot: str, key: lease_model.KeySeen, ref: lease_model.RefSeen, *,
    at: float, boottime_s: float = 0.0,
) -> LeaseStep:  # fmt: skip
    """Begin a claim over the key and the ref as they were read."""
    tokens = [each.token for each in (key.lease, ref.lease) if each is not None]
    lease = Lease(host, boot, next_token(item.token, *tokens), item=item.id, pushed=ref.tip)
    hold = LeaseHold(lease, ref.sha, key.revision, at, at, at, at, boottime_s, key=Link.BUSY)
    return hold, (WriteKey(lease, key.revision),)


def resume_hold(lease: Lease, *, at: float, boottime_s: float = 0.0) -> LeaseStep:
    """Continue a lease that an earlier daemon of this host claimed or held, by its own record."""
    hold = LeaseHold(
        lease, "", 0, at, at, at, at, boottime_s, Stage.HOLDING, Link.UNSURE, Link.BUSY, n=lease.n
    )
    return replace(hold, must_check=True), (LeaseOrder.READ_REF,)


def step(hold: LeaseHold, fact: lease_model.LeaseFact, rules: lease_model.LeaseRules, at: float) -> LeaseStep:
    """Return the next state and the orders for one fact. A final state only gives its key back."""
    if not hold.is_active:
        return _after_end(hold, fact)
    new, orders = _step(hold, fact, rules, at)
    if new.is_paused != hold.is_paused and new.is_active:
        return new, (*orders, LeaseOrder.PAUSE if new.is_paused else LeaseOrder.RESUME)
    return new, orders


def _step(
    hold: LeaseHold, fact: lease_model.LeaseFact, rules: lease_model.LeaseRules, at: float
) -> LeaseStep:
    match fact:
        case lease_model.Tick():
            return _tick(hold, fact, rules, at)
        case lease_model.KeyWritten(revision=revision):
            return _key_is_ours(replace(hold, revision=revision), at)
        case lease_model.KeySeen(lease=lease) if lease is not None and _is_same(lease, hold.lease):
            return _key_is_ours(replace(hold, revision=fact.revision), at)
        case lease_model.KeySeen():
            return _key_is_not_ours(hold, fact, at)
        case LeaseNews.KEY_REFUSED if hold.stage is Stage.CLAIMING and hold.ref is Link.IDLE:
            return replace(hold, stage=Stage.LOST, key=Link.IDLE), ()
        case LeaseNews.KEY_REFUSED:
            return replace(hold, key=Link.BUSY), (LeaseOrder.READ_KEY,)
        case LeaseNews.HUB_SILENT:
            return replace(hold, key=Link.UNSURE, key_at=at), ()
        case lease_model.RefMoved(sha=sha):
            return _moved(hold, sha, at)
        case lease_model.RefSeen():
            return _ref_seen(hold, fact, at)
        case LeaseNews.REF_REFUSED:
            return replace(hold, ref=Link.BUSY, is_refused=True), (LeaseOrder.READ_REF,)
        case LeaseNews.GIT_SILENT:
            return replace(hold, ref=Link.UNSURE, ref_at=at), ()
        case lease_model.PushWanted(commit=commit, last=last) if hold.stage is Stage.HOLDING:
            return _move_if_wanted(replace(hold, commit=commit, last=last))
        case LeaseNews.RELEASE_WANTED if hold.stage is Stage.HOLDING:
            return _move_if_wanted(replace(hold, stage=Stage.RELEASING))
        case _:
            return hold, ()


def _is_same(lease: Lease, other: Lease) -> bool:
    return (lease.host, lease.boot, lease.token) == (other.host, other.boot, other.token)


def _key_is_ours(hold: LeaseHold, at: float) -> LeaseStep:
    hold = replace(hold, key=Link.IDLE, key_at=at, renewed_at=at, is_contested=False, is_offline=False)
    if hold.ref is Link.IDLE and (hold.is_gone or hold.stage is Stage.CLAIMING):
        return _move(hold)
    return hold, ()


def _key_is_not_ours(hold: LeaseHold, seen: lease_model.KeySeen, at: float) -> LeaseStep:
    hold = replace(hold, key=Link.IDLE, key_at=at, revision=seen.revision)
    if hold.stage is Stage.CLAIMING and hold.ref is Link.IDLE:
        return replace(hold, stage=Stage.LOST), ()
    if seen.lease is None or seen.lease.token < hold.lease.token:  # NATS forgot
        return replace(hold, key=Link.BUSY), (WriteKey(hold.lease, seen.revision),)
    if hold.is_gone:
        return replace(hold, stage=Stage.FENCED), (LeaseOrder.FENCE,)
    return _move_if_wanted(replace(hold, is_contested=True))


def _move_if_wanted(hold: LeaseHold) -> LeaseStep:
    is_wanted = hold.commit or hold.is_contested or hold.stage is Stage.RELEASING
    if hold.ref is not Link.IDLE or hold.is_gone or hold.stage is Stage.CLAIMING or not is_wanted:
        return hold, ()
    return _move(hold)


def _move(hold: LeaseHold) -> LeaseStep:
    """Push a blob that was never pushed before: a late one of an earlier try is told from it."""
    n, last = hold.n + 1, hold.last or hold.lease.pushed
    commit = "" if hold.is_gone else hold.commit  # a refusal then has one cause
    host = lease_model.NOBODY if hold.stage is Stage.RELEASING else hold.lease.host
    new = replace(hold.lease, host=host, n=n, pushed=commit or hold.lease.pushed)
    hold = replace(hold, n=n, moving=new, ref=Link.BUSY, is_refused=False)
    return hold, (lease_model.MoveRef(new, hold.sha, commit, last if commit else ""),)


def _moved(hold: LeaseHold, sha: str, at: float) -> LeaseStep:
    new = hold.moving or hold.lease
    commit = "" if hold.commit == new.pushed else hold.commit
    hold = replace(
        hold, lease=new, sha=sha, moving=None, commit=commit, ref=Link.IDLE, ref_at=at, moved_at=at
    )
    hold = replace(hold, is_refused=False, is_gone=False, must_check=False, has_slept=False)
    if not new.host:
        return _end(hold, Stage.RELEASED)
    if hold.stage is Stage.CLAIMING:
        hold = replace(hold, stage=Stage.HOLDING)
    if hold.is_contested:
        hold = replace(hold, is_contested=False, key=Link.BUSY)
        next_hold, orders = _move_if_wanted(hold)
        return next_hold, (WriteKey(new, hold.revision), *orders)
    return _move_if_wanted(hold)


def _ref_seen(hold: LeaseHold, seen: lease_model.RefSeen, at: float) -> LeaseStep:
    lease, is_claim = seen.lease, hold.stage is Stage.CLAIMING
    hold = replace(hold, ref=Link.IDLE, ref_at=at)
    if lease and hold.moving and replace(lease, at=0.0) == replace(hold.moving, at=0.0):
        return _moved(hold, seen.sha, at)
    if is_claim and seen.sha == hold.sha:  # what the claim would replace is still there
        return _end(hold, Stage.LOST) if hold.is_refused else _move(hold)
    if lease is not None and _is_same(lease, hold.lease):
        return _still_ours(hold, seen.sha, lease)
    is_refused_again = hold.is_gone and hold.is_refused
    hold = replace(hold, moving=None, is_refused=False)
    if is_claim:
        return _end(hold, Stage.LOST)
    if not seen.sha and hold.stage is Stage.HOLDING:
        hold = replace(hold, sha="", is_gone=True)
        if hold.key is Link.BUSY or is_refused_again:  # the next tick reads the key
            return hold, ()
        return replace(hold, key=Link.BUSY), (LeaseOrder.READ_KEY,)
    if not seen.sha or (lease is not None and not lease.host and lease.token == hold.lease.token):
        return _end(hold, Stage.RELEASED)
    return replace(hold, stage=Stage.FENCED), (LeaseOrder.FENCE,)


def _still_ours(hold: LeaseHold, sha: str, lease: Lease) -> LeaseStep:
    is_branch_refused = hold.is_refused and hold.commit and sha == hold.sha
    stage = Stage.HOLDING if hold.stage is Stage.CLAIMING else hold.stage
    commit = "" if is_branch_refused or hold.commit == lease.pushed else hold.commit
    hold = replace(hold, lease=lease, sha=sha, stage=stage, n=max(hold.n, lease.n), commit=commit)
    hold = replace(hold, moving=None, is_refused=False, is_gone=False, must_check=False, has_slept=False)
    return hold, (LeaseOrder.HOLD_ITEM,) if is_branch_refused else ()


def _end(hold: LeaseHold, stage: Stage) -> LeaseStep:
    hold = replace(hold, stage=stage, lease=replace(hold.lease, host=lease_model.NOBODY), moving=None)
    if hold.is_contested:
        return hold, ()
    if hold.key is Link.BUSY:
        return replace(hold, owes_key=True), ()
    return hold, (WriteKey(hold.lease, hold.revision),)


def _after_end(hold: LeaseHold, fact: lease_model.LeaseFact) -> LeaseStep:
    match fact:
        case lease_model.KeyWritten(revision=revision) if hold.owes_key:
            return replace(hold, owes_key=False), (WriteKey(hold.lease, revision),)
        case _:
            return hold, ()


def _tick(hold: LeaseHold, tick: lease_model.Tick, rules: lease_model.LeaseRules, at: float) -> LeaseStep:
    """Do what is due. A gap of the boot clock between two ticks is a sleep, or a daemon that was frozen.

    The ralph is paused only if the ref is not checked by the next tick: a pause can end a command.
    """
    has_slept = hold.has_slept or tick.boottime_s - hold.boottime_s > rules.lease_s
    is_offline = hold.is_offline or 0 < rules.max_offline_s < at - hold.renewed_at
    hold = replace(hold, is_unchecked=hold.has_slept, has_slept=has_slept, is_offline=is_offline)
    ref_at = at - rules.lease_s if has_slept and not hold.is_unchecked else hold.ref_at  # read it now
    hold = replace(hold, boottime_s=tick.boottime_s, must_check=hold.must_check or has_slept, ref_at=ref_at)
    hold, orders = _tick_ref(hold, rules, at)
    must_read = hold.key is Link.UNSURE or hold.is_gone
    due_s = rules.lease_s / (6 if must_read else 3)
    if hold.key is Link.BUSY or hold.is_contested or tick.connected_since is None or at - hold.key_at < due_s:
        return hold, orders
    key = LeaseOrder.READ_KEY if must_read else WriteKey(hold.lease, hold.revision)
    return replace(hold, key=Link.BUSY), (*orders, key)


def _tick_ref(hold: LeaseHold, rules: lease_model.LeaseRules, at: float) -> LeaseStep:
    if hold.ref is Link.BUSY or at - hold.ref_at < rules.lease_s / 6:
        return hold, ()
    if hold.ref is Link.UNSURE or hold.must_check:
        return replace(hold, ref=Link.BUSY), (LeaseOrder.READ_REF,)
    is_offline = at - hold.renewed_at > rules.lease_s / 2 and at - hold.moved_at >= rules.offline_push_s
    if is_offline and hold.stage is Stage.HOLDING and not hold.is_gone:
        return _move(hold)
    return _move_if_wanted(hold)
