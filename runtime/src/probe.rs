//! What this kernel can do for the runtime, and what the runtime does where it can't.

use std::net::Ipv4Addr;
use std::{fmt, io};

use bowline_time::Duration;

use crate::clock::Source;
use crate::error::{Error, OLDEST_KERNEL, kernel_release};
use crate::fs::{File, OpenOptions};
use crate::net::{ListenOptions, TcpListener, TcpStream};
use crate::runtime::Runtime;
use crate::{buffer, spawn, timeout};

/// One row of the [`Report`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Feature {
    /// What it is.
    pub name: &'static str,
    /// The release that has it first.
    pub since: &'static str,
    /// Whether it is to be had here.
    pub available: bool,
    /// What is used where it is not.
    pub instead: &'static str,
}

/// What this kernel can do, as found by asking it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// The kernel's release.
    pub release: String,
    /// What the clock reads.
    pub clock: Source,
    /// Each feature that is used if there is one.
    pub features: Vec<Feature>,
}

/// Asks the kernel, by building a runtime and having it do something.
///
/// # Errors
///
/// Why there can be no runtime here; inside a runtime, that there is one already.
pub fn probe() -> Result<Report, Error> {
    let runtime = Runtime::builder().entries(8).buffers(1, 4096).build()?;
    let (receives, reads) = runtime.block_on(async {
        // That a sleep ends shows that requests go in, waits end in time, and the thread wakes.
        crate::sleep(Duration::from_micros(100)).await;
        (echoes().await.is_ok(), reads_a_file().await.is_ok())
    });
    let features = runtime.features();
    let row = |name, since, available, instead| Feature { name, since, available, instead };
    Ok(Report {
        release: kernel_release(),
        clock: runtime.clock_source(),
        features: vec![
            // Without these the runtime above could not have been built.
            row("deferred task work, single issuer", "6.1", true, "nothing: required"),
            row("provided buffer ring", "5.19", true, "nothing: required"),
            row("connect, multishot accept and receive", "6.0", receives, "nothing: required"),
            row("open and read of a file", "5.6", reads, "nothing: required for files"),
            row("registered ring descriptor", "5.18", features.registered, "a lookup per enter"),
            row("submission without index array", "6.6", features.no_array, "an index array"),
            row("absolute wait", "6.12", features.absolute_wait, "a relative wait"),
            row("wait not counted as iowait", "6.15", features.no_iowait, "counted as iowait"),
        ],
    })
}

/// Longer than anything on this machine takes that is not blocked.
const LIMIT: Duration = Duration::from_secs(5);

/// Sends a byte over loopback and back.
async fn echoes() -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0).into(), ListenOptions::default())?;
    let address = listener.local_addr()?;
    timeout(LIMIT, async {
        let server = spawn(async move {
            let stream = listener.accept().await?;
            if let Some(byte) = stream.receive().await? {
                stream.send(&byte);
            }
            Ok::<(), io::Error>(())
        });
        let stream = TcpStream::connect(address, LIMIT).await?;
        stream.send(b"?");
        stream.receive().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        server.await.map_err(|error| io::Error::other(error.to_string()))?
    })
    .await?
}

/// Opens a file that is there on every system, and reads it.
async fn reads_a_file() -> io::Result<()> {
    timeout(LIMIT, async {
        let file = File::open("/dev/zero", OpenOptions::new().read(true)).await?;
        file.read_exact_at(buffer::take(1), 0).await.0
    })
    .await?
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Linux {} (oldest supported: {OLDEST_KERNEL})", self.release)?;
        writeln!(f, "clock: {}", self.clock)?;
        writeln!(f, "{:<42} {:>6}  {:<6} otherwise", "feature", "since", "here")?;
        for Feature { name, since, available, instead } in &self.features {
            let here = if *available { "yes" } else { "no" };
            writeln!(f, "{name:<42} {since:>6}  {here:<6} {instead}")?;
        }
        Ok(())
    }
}
