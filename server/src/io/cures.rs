//! What helps where the system has not what a server needs.

use std::io;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What helps against an error of who wants to listen, as the end of a sentence; nothing, if that says
/// itself what to do.
pub(super) fn of_bind(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "; end who listens there (`ss -ltnp`), or take another port",
        io::ErrorKind::AddrNotAvailable => "; take an address that this host has (`ip address`)",
        io::ErrorKind::PermissionDenied => {
            "; take a port from 1024 on, or give the process CAP_NET_BIND_SERVICE"
        }
        _ => of_limit(error),
    }
}

/// As [`of_bind`], of who wants to look a name up, for which it takes a thread.
pub(super) fn of_look_up(error: &io::Error) -> &'static str {
    match is(error, Errno::AGAIN) {
        true => "; raise the limit of threads (`ulimit -u`, TasksMax of the service)",
        false => of_limit(error),
    }
}

/// As [`of_bind`], of whatever was tried.
pub(super) fn of_limit(error: &io::Error) -> &'static str {
    // What nobody cancelled, the kernel does where it has no thread for it.
    if is(error, Errno::CANCELED) {
        return "; if the kernel has no thread for it: raise the limit of threads (`ulimit -u`, \
                TasksMax of the service)";
    }
    bowline_runtime::cure(error)
}

fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}

/// Sees to it that the process may have so many descriptors open, as far as it may raise its own
/// limit. Where that is not enough, connections will be refused before the limit that was set for
/// them, and those that are kept for peers are not there: it is said at the start, with what helps.
pub(super) fn raise_descriptors(needed: u64) {
    let limit = getrlimit(Resource::Nofile);
    let Some(wanted) = raised(limit, needed) else { return };
    let may = match setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit }) {
        Ok(()) => wanted,
        Err(_) => limit.current.unwrap_or(u64::MAX),
    };
    if may < needed {
        tracing::warn!(
            needed,
            may,
            "too few open files for all connections that are allowed: raise their limit (`ulimit \
             -n`, LimitNOFILE of the service), or lower Limits::connections"
        );
    } else {
        tracing::info!(from = limit.current, to = may, "raised the limit of open files");
    }
}

/// What the limit is to be raised to, if it is to be: all that is needed, or that may be.
fn raised(limit: Rlimit, needed: u64) -> Option<u64> {
    let current = limit.current.filter(|current| *current < needed)?;
    Some(limit.maximum.map_or(needed, |maximum| needed.min(maximum)).max(current))
}

#[cfg(test)]
mod tests {
    use super::super::builder::ServeError;
    use super::*;
    use std::string::ToString;

    #[test]
    fn the_limit_of_open_files_is_raised_as_far_as_it_is_needed_and_may_be() {
        let limit = |current, maximum| Rlimit { current, maximum };
        assert_eq!(raised(limit(Some(1024), Some(4096)), 2000), Some(2000));
        assert_eq!(raised(limit(Some(1024), None), 2000), Some(2000));
        assert_eq!(raised(limit(Some(1024), Some(1500)), 2000), Some(1500));
        assert_eq!(raised(limit(Some(1024), Some(1024)), 2000), Some(1024), "and it is said");
        assert_eq!(raised(limit(Some(2000), Some(4096)), 2000), None);
        assert_eq!(raised(limit(None, None), 2000), None);
    }

    #[test]
    fn who_can_not_listen_is_told_what_helps_and_of_a_look_up_nothing_of_that() {
        let cure = |errno: Errno| of_bind(&errno.into()).to_string();
        for (errno, word) in [
            (Errno::ADDRINUSE, "port"),
            (Errno::ADDRNOTAVAIL, "address"),
            (Errno::ACCESS, "CAP_NET"),
            (Errno::MFILE, "ulimit -n"),
            (Errno::NFILE, "ulimit -n"),
        ] {
            assert!(cure(errno).contains(word), "{errno}: {}", cure(errno));
        }
        assert_eq!(cure(Errno::INVAL), "");
        let of_look_up = |errno: Errno| of_look_up(&errno.into());
        assert!(of_look_up(Errno::AGAIN).contains("ulimit -u"));
        assert!(of_look_up(Errno::MFILE).contains("ulimit -n"));
        assert_eq!(of_look_up(Errno::ACCESS), "");
        // A service may be denied a file, or find it locked, which has nothing to do with ports.
        assert_eq!(of_limit(&Errno::ACCESS.into()), "");
        assert_eq!(of_limit(&Errno::AGAIN.into()), "");
    }

    #[test]
    fn who_finds_a_limit_at_the_start_is_told_which() {
        for (errno, word) in [(Errno::MFILE, "ulimit -n"), (Errno::CANCELED, "ulimit -u")] {
            for error in [ServeError::Service(errno.into()), ServeError::Signals(errno.into())] {
                assert!(error.to_string().contains(word), "{error}");
            }
        }
    }
}
