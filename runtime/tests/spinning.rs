//! A core that looks for work before it sleeps.

mod common;

use std::sync::mpsc;
use std::time::Duration;

use bowline_runtime::net::TcpStream;
use bowline_runtime::{Builder, Metrics, Runtime, metrics, sleep};
use common::{LONG, listen, run, run_on};

/// Has another core echo so many messages one by one. Gives what was counted here meanwhile.
fn echoed(builder: &Builder, count: usize) -> [Metrics; 2] {
    let (tell, told) = mpsc::channel();
    let peer = std::thread::spawn(move || {
        run(async {
            let (listener, address) = listen();
            tell.send(address).unwrap();
            let stream = listener.accept().await.unwrap();
            while let Some(lease) = stream.receive().await.unwrap() {
                stream.send(&lease);
            }
        });
    });
    let counted = run_on(&builder.build().unwrap(), async {
        let stream = TcpStream::connect(told.recv().unwrap(), LONG).await.unwrap();
        let before = metrics();
        for _ in 0..count {
            stream.send(b"ping");
            assert_eq!(&stream.receive().await.unwrap().unwrap()[..], b"ping");
        }
        [before, metrics()]
    });
    peer.join().unwrap();
    counted
}

#[test]
fn a_core_that_may_spin_finds_its_work_awake() {
    let [before, after] = echoed(&Runtime::builder(), 200);
    assert!(after.waits > before.waits && after.spins == 0, "it is not asked to spin");
    let [before, after] = echoed(&Runtime::builder().spin(LONG), 200);
    assert_eq!(after.waits, before.waits, "it slept");
    assert!(after.spins > before.spins);
    assert_eq!(after.spins_in_vain, 0);
}

#[test]
fn a_core_whose_work_comes_rarely_gives_up_to_spin_for_it() {
    let runtime = Runtime::builder().spin(Duration::from_micros(1)).build().unwrap();
    run_on(&runtime, async {
        for _ in 0..200 {
            sleep(Duration::from_millis(1)).await;
        }
        let Metrics { spins, spins_in_vain, .. } = metrics();
        assert!(spins_in_vain > 0 && spins < 100, "{spins} spins, {spins_in_vain} in vain");
    });
}
