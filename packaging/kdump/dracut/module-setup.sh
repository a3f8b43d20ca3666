#!/bin/bash
# Puts pagehaul into the initramfs of a capture kernel, where the kdump scripts call makedumpfile. Modules are installed in
# the order of their directories: this one comes after kdump-utils' 99kdumpbase and openSUSE's 99kdump.

# Without effect where neither is part of the initramfs.
check() {
    return 0
}

depends() {
    return 0
}

install() {
    local name copy
    dracut_module_included kdumpbase || dracut_module_included kdump || return 0
    # dracut keeps a file that is there already.
    for name in /usr/bin/makedumpfile /usr/sbin/makedumpfile /bin/makedumpfile /sbin/makedumpfile; do
        copy=$initdir$name
        if [[ -e $copy || -L $copy ]]; then
            rm -f "$copy"
        fi
    done
    # `pagehaul kdump check` looks for this path.
    inst_simple /usr/lib/pagehaul/makedumpfile
    # Whom dumps are encrypted to.
    [[ ! -e /etc/pagehaul/recipients ]] || inst_simple /etc/pagehaul/recipients
    # /sbin and /usr/sbin are links to /usr/bin in some releases of Fedora, and directories in others.
    for name in /usr/bin /usr/sbin /sbin; do
        [[ -e $initdir$name/makedumpfile ]] || ln_r /usr/lib/pagehaul/makedumpfile "$name/makedumpfile"
    done
}
