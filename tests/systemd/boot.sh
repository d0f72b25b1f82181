#!/bin/sh
# Boots a systemd in a mount, pid and control group namespace of its own, as its first process.
#   boot.sh SCRATCH OUTSIDE KEPT...
# SCRATCH: the directory of the test. OUTSIDE: the mount namespace of the machine, as /proc/self/ns/mnt has it.
# KEPT: directories that have to be seen inside, wherever they are.
#
# A mount namespace shares the file systems of the machine: without its masks this boot would empty the machine's
# /tmp, since systemd-tmpfiles obeys what it finds. So nothing is started before all of them have been looked at.
set -eu

refuse() {
    echo "boot.sh: $1; nothing was started" >&2
    exit 1
}

scratch=$1 outside=$2
shift 2
[ "$(id -u)" = 0 ] || refuse "it needs root"
[ "$$" = 1 ] || refuse "it is not the first process of a pid namespace"
[ "$(readlink /proc/self/ns/mnt)" != "$outside" ] || refuse "this is the machine's own mount namespace"
[ -s /etc/machine-id ] || refuse "the machine has no id, and systemd would give it one"
mount --make-rprivate /

units=/etc/systemd/system
covered="/tmp /var/tmp /var/log /var/lib /run /root /home $units"
masked="systemd-tmpfiles-setup.service systemd-tmpfiles-setup-dev.service systemd-tmpfiles-setup-dev-early.service
    systemd-tmpfiles-clean.service systemd-tmpfiles-clean.timer systemd-sysctl.service modprobe@.service
    systemd-random-seed.service systemd-binfmt.service systemd-update-utmp.service systemd-remount-fs.service
    systemd-modules-load.service systemd-sysusers.service systemd-udevd.service systemd-udev-trigger.service
    systemd-machine-id-commit.service systemd-journald.service systemd-journal-flush.service
    sysinit.target basic.target local-fs.target swap.target timers.target"

# What is kept is held before it is covered, and put back after.
mount -t tmpfs -o mode=755 tmpfs /mnt
for kept in "$scratch" "$@"; do
    mkdir -p "/mnt$kept"
    mount --bind "$kept" "/mnt$kept"
done
before=""
for place in $covered; do
    before="$before $(stat -c %d "$place")"
    mode=755
    case $place in /tmp | /var/tmp) mode=1777 ;; esac
    mount -t tmpfs -o "mode=$mode" tmpfs "$place"
done
for kept in "$scratch" "$@"; do
    mkdir -p "$kept"
    mount --bind "/mnt$kept" "$kept"
done
umount -l /mnt
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -o remount,bind,ro /sys
mount --bind /proc/sys /proc/sys
mount -o remount,bind,ro /proc/sys
mount --bind "$scratch/console" /dev/console
mount --bind "$scratch/passwd" /etc/passwd
mount --bind "$scratch/group" /etc/group
for unit in $masked; do
    ln -s /dev/null "$units/$unit"
done
cp -R "$scratch/units/." "$units/"

for place in $covered; do
    was=${before# }
    was=${was%% *}
    before=${before# }
    before=" ${before#* }"
    [ "$(stat -f -c %T "$place")" = tmpfs ] || refuse "$place is not covered"
    [ "$(stat -c %d "$place")" != "$was" ] || refuse "$place is the machine's"
done
for unit in $masked; do
    [ "$(readlink "$units/$unit")" = /dev/null ] || refuse "$unit is not masked"
done
grep -q '^DefaultDependencies=no$' "$units/ralphd-test.target" || refuse "the target is not our own"

exec env -i PATH="$PATH" container=other LANG=C.UTF-8 \
    /lib/systemd/systemd --system --unit=ralphd-test.target --log-target=console --show-status=no
