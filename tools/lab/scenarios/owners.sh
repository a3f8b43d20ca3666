# Runs before a crash: makes XFS on $XFS, and has the kernel swap to $SWAP.
set -eu
mkfs.xfs -q "$XFS"
mkdir -p /mnt/xfs
mount -t xfs "$XFS" /mnt/xfs
mkswap "$SWAP"
swapon "$SWAP"
