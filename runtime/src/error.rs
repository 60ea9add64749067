//! Why a runtime can't be had, and what helps.

use std::fmt;
use std::io;

/// The oldest kernel on which the runtime works.
pub const OLDEST_KERNEL: &str = "6.1";

/// Why a [`Runtime`](crate::Runtime) could not be built.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel, or the sandbox around it, answers that there is no io_uring at all.
    #[error(
        "io_uring does not exist here (ENOSYS): the kernel is built without CONFIG_IO_URING, or \
         this is a sandbox such as gVisor; run on Linux {OLDEST_KERNEL} or later without one"
    )]
    Missing,
    /// `kernel.io_uring_disabled` forbids it to this process.
    #[error(
        "io_uring is switched off (kernel.io_uring_disabled is {level}): set it to 0 with \
         `sysctl kernel.io_uring_disabled=0`{}",
        if *level == 1 { ", or run with CAP_SYS_ADMIN or in the group of kernel.io_uring_group" }
        else { "" }
    )]
    Disabled {
        /// What the switch stands at: 1 forbids it to the unprivileged, 2 to everybody.
        level: u8,
    },
    /// A seccomp filter or a security module forbids it.
    #[error(
        "io_uring is forbidden ({source}) though kernel.io_uring_disabled is 0: a seccomp filter \
         or a security module is in the way; in a container, allow io_uring_setup, io_uring_enter \
         and io_uring_register in its seccomp profile"
    )]
    Forbidden {
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel has io_uring, but is too old.
    #[error(
        "this kernel's io_uring lacks {what}: Linux {OLDEST_KERNEL} or later is needed, this is \
         {release}"
    )]
    TooOld {
        /// What is lacking.
        what: &'static str,
        /// The release of the running kernel.
        release: String,
    },
    /// No memory for rings and buffers.
    #[error(
        "no memory for {what} ({source}); RLIMIT_MEMLOCK is {limit}: raise it (`ulimit -l`, or \
         LimitMEMLOCK= in a systemd unit), or ask for fewer entries and buffers"
    )]
    Memory {
        /// What the memory was for.
        what: &'static str,
        /// The soft limit on locked memory, in bytes, or "unlimited".
        limit: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The thread can't be pinned to that CPU.
    #[error("this thread can't be pinned to CPU {cpu}: it is not among those the process may use")]
    Pin {
        /// The CPU asked for.
        cpu: usize,
    },
    /// A thread that is inside a runtime can't make another.
    #[error("this thread runs a runtime already")]
    Nested,
    /// Something else failed.
    #[error("{what}: {source}{}", cure(source))]
    Io {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

/// What `main` prints of an error that it returns: with the cure, as Display has it.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error {
    pub(crate) fn io(what: &'static str) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::Io { what, source }
    }

    /// What the failure to set a ring up means.
    pub(crate) fn of_setup(source: io::Error) -> Error {
        Self::explain("io_uring_setup", source, disabled_level())
    }

    /// What the failure to enter a ring means that could be set up.
    pub(crate) fn of_enter(source: io::Error) -> Error {
        match source.raw_os_error() {
            // Some filters answer as a kernel without io_uring does.
            Some(libc::EPERM | libc::EACCES | libc::ENOSYS) => Error::Forbidden { source },
            _ => Error::Io { what: "io_uring_enter", source },
        }
    }

    fn explain(what: &'static str, source: io::Error, disabled: u8) -> Error {
        match source.raw_os_error() {
            Some(libc::ENOSYS) => Error::Missing,
            Some(libc::EPERM | libc::EACCES) if disabled > 0 => Error::Disabled { level: disabled },
            Some(libc::EPERM | libc::EACCES) => Error::Forbidden { source },
            Some(libc::ENOMEM) => Error::Memory { what, limit: memlock(), source },
            _ => Error::Io { what, source },
        }
    }

    /// What the failure to register the receive buffers means.
    pub(crate) fn of_buffers(source: io::Error) -> Error {
        // A kernel that could set the ring up, which takes 6.1, has buffer rings, which came with
        // 5.19: whatever it refuses, its age is not the reason.
        Self::explain("registering receive buffers", source, disabled_level())
    }

    /// What the failure to register memory for transfers means.
    pub(crate) fn of_region(source: io::Error) -> Error {
        Self::explain("registering buffers for files", source, disabled_level())
    }

    pub(crate) fn too_old(what: &'static str) -> Error {
        Error::TooOld { what, release: kernel_release() }
    }
}

/// What helps against an error of the system of which nothing else is said, as the end of a sentence;
/// empty where nothing is known.
pub fn cure(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE) => {
            "; raise the limit of open files (`ulimit -n`, LimitNOFILE of the service)"
        }
        _ => "",
    }
}

/// The running kernel's release, as `uname -r` prints it.
pub(crate) fn kernel_release() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease")
        .map_or_else(|_| "unknown".into(), |release| release.trim().into())
}

/// `kernel.io_uring_disabled`; kernels before 6.6 don't have it.
fn disabled_level() -> u8 {
    std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled")
        .ok()
        .and_then(|level| level.trim().parse().ok())
        .unwrap_or(0)
}

fn memlock() -> String {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: getrlimit writes to the struct that is given, and nowhere else.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) };
    match limit.rlim_cur {
        _ if result != 0 => "unknown".into(),
        libc::RLIM_INFINITY => "unlimited".into(),
        bytes => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(errno: i32, disabled: u8) -> String {
        Error::explain("io_uring_setup", io::Error::from_raw_os_error(errno), disabled).to_string()
    }

    #[test]
    fn each_refusal_names_its_cause_and_its_cure() {
        assert!(text(libc::ENOSYS, 0).contains("CONFIG_IO_URING"));
        assert!(text(libc::EPERM, 2).contains("sysctl kernel.io_uring_disabled=0"));
        assert!(text(libc::EPERM, 1).contains("CAP_SYS_ADMIN"));
        assert!(!text(libc::EPERM, 2).contains("CAP_SYS_ADMIN"));
        assert!(text(libc::EPERM, 0).contains("seccomp profile"));
        assert!(text(libc::ENOMEM, 0).contains("ulimit -l"));
        assert!(text(libc::EMFILE, 0).contains("ulimit -n"));
        let refused = Error::of_buffers(io::Error::from_raw_os_error(libc::EINVAL)).to_string();
        assert!(refused.contains("receive buffers") && !refused.contains(OLDEST_KERNEL));
        // As `main` prints what it returns.
        let old = format!("{:?}", Error::too_old("DEFER_TASKRUN"));
        assert!(old.contains(OLDEST_KERNEL) && old.contains("DEFER_TASKRUN"));
    }
}
