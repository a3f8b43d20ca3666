/// Returns the binary field for a name in vmscan's print formats (`include/trace/events/vmscan.h`, Linux 4.4
/// to 7.2).
pub(super) fn field_name<'a>(event: &str, printed: &'a str) -> &'a str {
    if !event.starts_with("mm_vmscan_") && !event.starts_with("mm_shrink_slab_") {
        return printed;
    }
    match printed {
        "flags" => "reclaim_flags",
        "usect_delayed" => "usec_delayed",
        "nr_activate_anon" => "nr_activate0",
        "nr_activate_file" => "nr_activate1",
        "classzone" => "highest_zoneidx",
        "objects to shrink" => "nr_objects_to_shrink",
        "cache items" => "cache_items",
        "unused scan count" => "unused_scan",
        "new scan count" => "new_scan",
        "last shrinker return val" => "retval",
        other => other,
    }
}
