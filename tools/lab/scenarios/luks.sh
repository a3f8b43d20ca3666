# Runs before a crash: makes a LUKS disk on $LUKS, opens it, and writes a file to it. The volume key stays in a keyring, too.
# Prints the device, its table, and the volume key.
set -eu
# No udevd makes the nodes of devices.
export DM_DISABLE_UDEV=1
mkdir -p /run /mnt/luks
echo "scene" >/tmp/passphrase
open="--batch-mode --key-file /tmp/passphrase"
cryptsetup luksFormat $open --type luks2 --pbkdf argon2id --pbkdf-memory 32768 --pbkdf-parallel 1 --pbkdf-force-iterations 4 "$LUKS"
cryptsetup luksOpen $open --link-vk-to-keyring "@u::%logon:scene:luks" "$LUKS" scene-luks
mkfs.ext4 -q /dev/mapper/scene-luks
mount /dev/mapper/scene-luks /mnt/luks
seq 100000 >/mnt/luks/file
sync
echo "device $(dmsetup info --columns --noheadings -o blkdevname scene-luks)"
echo "table $(dmsetup table --showkeys scene-luks)"
# In hexadecimal: nothing here has the bytes of the key.
cryptsetup luksDump $open --dump-volume-key "$LUKS" | sed -n '/MK dump:/,$ { s/.*dump:/volume-key/; p }'
