//! The machine that a run was made on: what a reader needs to judge or repeat it.

use std::fs;
use std::path::Path;

use serde::Serialize;

/// Kernel, CPU, clock and source code. What the system does not tell is "unknown".
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// Release of the kernel.
    pub kernel: String,
    /// Model of the CPU.
    pub cpu: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// `x86_64` or `aarch64`.
    pub arch: &'static str,
    /// Where the kernel reads time.
    pub clock_source: String,
    /// What sets the CPU's frequency.
    pub governor: String,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Whether the kernel says that it is a guest of a hypervisor.
    pub virtual_machine: bool,
    /// Git revision that the program was built from; `-dirty` if it had local changes.
    pub revision: &'static str,
    /// Version of the program.
    pub version: &'static str,
    /// Whether it was built with optimizations; figures of a debug build mean nothing.
    pub optimized: bool,
}

impl Machine {
    /// Reads the machine this runs on.
    pub fn read() -> Self {
        Self::read_below(Path::new("/"))
    }

    /// What it costs that time is not read from a counter of the CPU, in a sentence, if it costs more
    /// than nanoseconds.
    pub fn slow_clock(&self) -> Option<String> {
        /// Those that the kernel lends to processes, so that to read one takes no call (Xen's where
        /// its CPUs agree, as they mostly do).
        const LENT: [&str; 5] =
            ["tsc", "arch_sys_counter", "kvm-clock", "xen", "hyperv_clocksource_tsc_page"];
        let source = self.clock_source.as_str();
        (source != "unknown" && !LENT.contains(&source)).then(|| {
            format!(
                "the kernel reads time from {source} here: that takes a call and maybe microseconds \
                 each time, and a request needs several; see \
                 /sys/devices/system/clocksource/clocksource0/available_clocksource for others"
            )
        })
    }

    /// Reads `proc` and `sys` below `root`.
    fn read_below(root: &Path) -> Self {
        let text = |path: &str| {
            fs::read_to_string(root.join(path)).map(|text| text.trim().to_owned()).ok()
        };
        let known = |path: &str| {
            text(path).filter(|text| !text.is_empty()).unwrap_or_else(|| "unknown".into())
        };
        let cpu_info = text("proc/cpuinfo").unwrap_or_default();
        Machine {
            kernel: known("proc/sys/kernel/osrelease"),
            cpu: cpu_model(&cpu_info)
                .or_else(|| text("proc/device-tree/model"))
                .unwrap_or_else(|| "unknown".into()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            arch: std::env::consts::ARCH,
            clock_source: known("sys/devices/system/clocksource/clocksource0/current_clocksource"),
            governor: known("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            memory_mib: memory_mib(&text("proc/meminfo").unwrap_or_default()),
            virtual_machine: field(&cpu_info, "flags")
                .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            revision: env!("BOWLINE_REVISION"),
            version: env!("CARGO_PKG_VERSION"),
            optimized: !cfg!(debug_assertions),
        }
    }
}

/// x86_64 names a model; aarch64 gives numbers that stand for one.
fn cpu_model(cpu_info: &str) -> Option<String> {
    if let Some(model) = field(cpu_info, "model name") {
        return Some(model.to_owned());
    }
    let implementer = field(cpu_info, "CPU implementer")?;
    let part = field(cpu_info, "CPU part")?;
    Some(format!("implementer {implementer}, part {part}"))
}

fn memory_mib(mem_info: &str) -> u64 {
    field(mem_info, "MemTotal")
        .and_then(|value| value.split(' ').next()?.parse::<u64>().ok())
        .map_or(0, |kib| kib >> 10)
}

/// The first value of `key` in a file of `key : value` lines.
fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> Machine {
        let root = tempfile::tempdir().expect("a temporary folder");
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("writable");
            fs::write(path, text).expect("writable");
        }
        Machine::read_below(root.path())
    }

    #[test]
    fn a_machine_is_read_off_proc_and_sys() {
        let machine = machine(&[
            ("proc/sys/kernel/osrelease", "6.1.0-44-amd64\n"),
            ("proc/cpuinfo", "processor\t: 0\nmodel name\t: Fast CPU\nflags\t\t: fpu hypervisor\n"),
            ("proc/meminfo", "MemTotal:       24689560 kB\nMemFree: 1 kB\n"),
            ("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n"),
            ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n"),
        ]);
        assert_eq!(machine.kernel, "6.1.0-44-amd64");
        assert_eq!(machine.cpu, "Fast CPU");
        assert_eq!(machine.clock_source, "tsc");
        assert_eq!(machine.governor, "performance");
        assert_eq!(machine.memory_mib, 24_110);
        assert!(machine.virtual_machine);
    }

    #[test]
    fn a_clock_that_takes_a_call_of_the_kernel_is_told_with_its_name() {
        let told = |source: &str| {
            let path = "sys/devices/system/clocksource/clocksource0/current_clocksource";
            machine(&[(path, source)]).slow_clock()
        };
        for quick in ["tsc", "kvm-clock", "xen", "arch_sys_counter", ""] {
            assert_eq!(told(quick), None);
        }
        for slow in ["hpet", "acpi_pm"] {
            let said = told(slow).expect("a slow one");
            assert!(said.contains(slow) && said.contains("available_clocksource"), "{said}");
        }
    }

    #[test]
    fn an_arm_core_is_named_by_its_numbers() {
        let machine = machine(&[("proc/cpuinfo", "CPU implementer\t: 0x41\nCPU part\t: 0xd0c\n")]);
        assert_eq!(machine.cpu, "implementer 0x41, part 0xd0c");
    }

    #[test]
    fn what_the_system_does_not_tell_is_unknown() {
        let machine = machine(&[]);
        assert_eq!(machine.governor, "unknown");
        assert_eq!(machine.cpu, "unknown");
        assert!(!machine.virtual_machine);
        assert!(!machine.revision.is_empty());
    }
}
