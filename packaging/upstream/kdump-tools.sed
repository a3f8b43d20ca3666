# For kdump-config of kdump-tools: MAKEDUMPFILE in /etc/default/kdump-tools names the program that writes dumps.
/\. \$KDUMP_DEFAULTS/a MAKEDUMPFILE=${MAKEDUMPFILE:-makedumpfile}
/log_|logger/!s/(^|[[:space:]])makedumpfile (--dump-dmesg|\$MAKEDUMP_ARGS)/\1"$MAKEDUMPFILE" \2/
s/command -v makedumpfile/command -v "$MAKEDUMPFILE"/
