# For module-setup.sh of kdump-utils: `export MAKEDUMPFILE=…` in /etc/sysconfig/kdump names the program that the initramfs gets as
# makedumpfile; kdump.sh and kdump.conf stay as they are.
s|inst "/sbin/makedumpfile" "/sbin/makedumpfile"|inst "${MAKEDUMPFILE:-/sbin/makedumpfile}" "/sbin/makedumpfile"|
