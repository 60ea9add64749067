//! What the probe tells, and what a program hears where io_uring is not to be had. The refusals are
//! real ones: a child process forbids itself the calls, as a sandbox does, and then tries.

mod common;

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use bowline_runtime::{Answer, OLDEST_KERNEL, Runtime, Use, buffer, probe, sleep};
use common::log::Ear;

#[test]
fn the_probe_tells_what_this_kernel_has_and_what_is_used_instead() {
    let report = probe().unwrap();
    let text = report.to_string();
    assert!(text.contains(&report.release) && text.contains(OLDEST_KERNEL), "{text}");
    assert_eq!(report.missing().count(), 0, "all other tests use these: {text}");
    for feature in &report.features {
        assert!(text.contains(feature.name) && text.contains(feature.in_use()), "{text}");
        if feature.answer == Answer::Works && feature.used == Use::WhereItWorks {
            assert_eq!(feature.in_use(), "used");
        }
    }
    for name in ["SINGLE_ISSUER", "ABS_TIMER", "NOP", "READ_FIXED", "MSG_RING", "SEND_ZC"] {
        assert!(text.contains(name), "{name} is missing: {text}");
    }
}

/// Set for the child: what it is to do.
const ROLE: &str = "BOWLINE_TEST_ROLE";
const SETUP: u32 = libc::SYS_io_uring_setup as u32;
const ENTER: u32 = libc::SYS_io_uring_enter as u32;
const REGISTER: u32 = libc::SYS_io_uring_register as u32;

/// Has a system call fail with an error, in this process from now on.
fn forbid(call: u32, errno: i32) -> io::Result<()> {
    let statement = |code: u32, k| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let mut filter = [
        // The number of the call is the first word of what the filter sees.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        libc::sock_filter { jf: 1, ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, call) },
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | errno as u32),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program and its filter live until the calls return, and the kernel copies them.
    let result = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Runs `child` of this very program in a process that did `before` to itself, and gives what it
/// wrote; None if `before` can't be done here.
fn run_child(
    role: &str,
    before: impl FnMut() -> io::Result<()> + Send + Sync + 'static,
) -> Option<String> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--nocapture"]).env(ROLE, role);
    // SAFETY: `before` makes system calls and nothing else.
    unsafe { command.pre_exec(before) };
    let output = command.output().ok()?;
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    Some(text)
}

fn refusal(call: u32, errno: i32) -> String {
    run_child("build", move || forbid(call, errno)).expect("seccomp works")
}

/// Not a test of its own: what the other tests start, each in a role.
#[test]
fn child() {
    match std::env::var(ROLE).as_deref() {
        Ok("build") => match Runtime::builder().build() {
            Ok(_) => println!("it was built"),
            Err(error) => println!("refused: {error}"),
        },
        Ok("map") => {
            let _runtime = Runtime::builder().build().unwrap();
            let maps = fs::read_to_string("/proc/self/smaps").unwrap();
            let lines = maps.lines().skip_while(|line| !line.contains("[io_uring]"));
            lines
                .filter(|line| line.contains("[io_uring]") || line.starts_with("VmFlags:"))
                .for_each(|line| println!("{line}"));
        }
        Ok("register") => {
            tracing::subscriber::set_global_default(Ear(tracing::Level::TRACE, print)).unwrap();
            let runtime = Runtime::builder().registered_buffers(1024, 65_536).build().unwrap();
            runtime.block_on(async {
                sleep(Duration::from_micros(1)).await;
                println!("registered: {}", buffer::take(65_536).is_registered());
            });
        }
        Ok("poll") => {
            tracing::subscriber::set_global_default(Ear(tracing::Level::WARN, print)).unwrap();
            let runtime = Runtime::builder().busy_poll(Duration::from_micros(20)).build().unwrap();
            runtime.block_on(async { sleep(Duration::from_micros(1)).await });
            println!("it was built");
        }
        _ => {}
    }
}

/// Prints the fields of events.
fn print(event: &tracing::Event<'_>) {
    struct Visit;
    impl tracing::field::Visit for Visit {
        fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
            println!("{field}: {value:?}");
        }
    }
    event.record(&mut Visit);
}

#[test]
fn a_process_that_forks_hands_no_ring_on() {
    let text = run_child("map", || Ok(())).expect("a child runs");
    let lines: Vec<_> = text.lines().collect();
    let flags = lines.windows(2).filter(|pair| pair[0].contains("[io_uring]")).map(|pair| pair[1]);
    let flags: Vec<_> = flags.collect();
    assert!(!flags.is_empty(), "{text}");
    for flags in flags {
        // As `madvise` has it: not to be copied.
        assert!(flags.starts_with("VmFlags:") && flags.contains(" dc"), "{text}");
    }
}

#[test]
fn where_the_kernel_has_no_io_uring_the_error_says_so() {
    let text = refusal(SETUP, libc::ENOSYS);
    assert!(text.contains("CONFIG_IO_URING") && text.contains("gVisor"), "{text}");
}

#[test]
fn where_a_filter_forbids_it_the_error_names_the_calls_to_allow() {
    if disabled() {
        return;
    }
    // Entering is forbidden by some that allow all else, and may be answered as if there were nothing.
    for (call, errno) in
        [(SETUP, libc::EPERM), (REGISTER, libc::EPERM), (ENTER, libc::EPERM), (ENTER, libc::ENOSYS)]
    {
        let text = refusal(call, errno);
        assert!(text.contains("seccomp") && text.contains("io_uring_register"), "{text}");
    }
}

#[test]
fn where_the_kernel_is_too_old_the_error_says_which_is_needed() {
    let text = refusal(SETUP, libc::EINVAL);
    assert!(text.contains("DEFER_TASKRUN"), "{text}");
    assert!(text.contains(&format!("Linux {OLDEST_KERNEL} or later")), "{text}");
}

#[test]
fn where_memory_is_short_the_error_names_the_limit_and_how_to_raise_it() {
    let text = refusal(SETUP, libc::ENOMEM);
    assert!(text.contains("RLIMIT_MEMLOCK is") && text.contains("ulimit -l"), "{text}");
}

/// Whether io_uring is really switched off here.
fn disabled() -> bool {
    fs::read_to_string(SWITCH).is_ok_and(|level| level.trim() != "0")
}

const SWITCH: &str = "/proc/sys/kernel/io_uring_disabled";

#[test]
fn where_it_is_switched_off_the_error_names_the_switch() {
    let folder = tempfile::tempdir().unwrap();
    for (level, more) in [("1", "CAP_SYS_ADMIN"), ("2", "sysctl kernel.io_uring_disabled=0")] {
        // A file in place of the switch, in a file system tree of the child's own: the switch
        // itself is everybody's.
        let file = folder.path().join(level);
        fs::write(&file, level).unwrap();
        let path = std::ffi::CString::new(file.to_str().unwrap()).unwrap();
        let switch = std::ffi::CString::new(SWITCH).unwrap();
        let paths = Arc::new((path, switch));
        let text = run_child("build", move || {
            // SAFETY: the strings end in zero and live as long as the call.
            let hidden = unsafe {
                libc::unshare(libc::CLONE_NEWNS) == 0
                    && libc::mount(
                        std::ptr::null(),
                        c"/".as_ptr(),
                        std::ptr::null(),
                        libc::MS_REC | libc::MS_PRIVATE,
                        std::ptr::null(),
                    ) == 0
                    && libc::mount(
                        paths.0.as_ptr(),
                        paths.1.as_ptr(),
                        std::ptr::null(),
                        libc::MS_BIND,
                        std::ptr::null(),
                    ) == 0
            };
            if !hidden {
                return Err(io::Error::last_os_error());
            }
            forbid(SETUP, libc::EPERM)
        });
        // Only root can, and older kernels have no such switch.
        let Some(text) = text else { return };
        assert!(text.contains(&format!("io_uring_disabled is {level}")), "{text}");
        assert!(text.contains(more), "{text}");
    }
}

/// Runs the child where no more than so many bytes of memory may be locked.
fn with_locked_memory(role: &str, bytes: u64) -> String {
    let before = move || {
        const CAP_IPC_LOCK: libc::c_int = 14;
        let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
        // SAFETY: the limit lives as long as the call. A capability that is not to be had any more
        // goes when the program starts.
        unsafe {
            libc::prctl(libc::PR_CAPBSET_DROP, CAP_IPC_LOCK, 0, 0, 0);
            match libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        }
    };
    run_child(role, before).expect("limits can be lowered")
}

#[test]
fn where_no_memory_may_be_locked_the_error_names_the_limit() {
    let text = with_locked_memory("build", 0);
    // Rings count for that limit where they are mapped as regions (in 6.18, not in 6.1).
    if !text.contains("it was built") {
        assert!(text.contains("RLIMIT_MEMLOCK is 0 bytes") && text.contains("ulimit -l"), "{text}");
    }
}

#[test]
fn where_little_memory_may_be_locked_buffers_are_plain_and_a_warning_says_why() {
    let text = with_locked_memory("register", 8 << 20);
    assert!(text.contains("registered: false"), "{text}");
    assert!(text.contains("RLIMIT_MEMLOCK is 8388608 bytes"), "{text}");
    assert!(text.contains("ulimit -l") && text.contains("no buffers are registered"), "{text}");
}

#[test]
fn where_the_kernel_polls_no_network_cards_a_warning_says_so_and_all_else_goes_on() {
    let text = run_child("poll", || Ok(())).expect("a child runs");
    assert!(text.contains("it was built"), "{text}");
    let report = probe().unwrap();
    let polling = report.features.iter().find(|feature| feature.name == "NAPI busy poll").unwrap();
    let warned = text.contains("which takes Linux 6.9") && text.contains("waits for interrupts");
    assert_eq!(warned, polling.answer != Answer::Works, "{text}{report}");
}
