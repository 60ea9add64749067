#![no_main]

use std::collections::VecDeque;

use bowline_fuzz::next;
use bowline_protocol::{Credit, Granter, Spender};
use libfuzzer_sys::fuzz_target;

/// The largest payload.
const MOST: usize = 1000;

/// What is under way in both directions between a client and a server.
#[derive(Default)]
struct Wire {
    requests: VecDeque<usize>,
    credits: VecDeque<Credit>,
}

/// A request of some size: often the largest, or none.
fn size(number: u8) -> usize {
    match number {
        0..=127 => usize::from(number) * 4,
        128..=191 => MOST,
        192.. => 0,
    }
}

// A client that spends, a server that gives back, and a wire that takes its time. Nothing is sent that
// the server would not take, what is under way never exceeds the window, and when all has come to its
// end there is credit for the largest request again.
fuzz_target!(|data: &[u8]| {
    let mut data = data;
    let window = Credit {
        requests: u64::from(next(&mut data) % 8) + 1,
        bytes: (2 * MOST) as u64 + u64::from(next(&mut data)),
    };
    let (mut server, mut client) = (Granter::new(window), Spender::new(Some(window)));
    let (mut wire, mut running) = (Wire::default(), Vec::new());
    while !data.is_empty() {
        let (step, number) = (next(&mut data), next(&mut data));
        match step % 6 {
            0 if client.try_request(size(number)) => wire.requests.push_back(size(number)),
            1 => running.extend(wire.requests.pop_front().inspect(|&size| {
                server.on_request(size).expect("the client keeps to what it was granted");
            })),
            2 if !running.is_empty() => {
                let bytes = running.swap_remove(usize::from(number) % running.len());
                end(&mut server, bytes, &mut wire);
            }
            3 => wire.credits.pop_front().into_iter().for_each(|it| client.on_credit(it)),
            4 => {
                // The last one does not leave after all.
                wire.requests.pop_back().into_iter().for_each(|size| client.refund(size));
            }
            // An old grant says nothing.
            5 => client.on_credit(Credit { requests: window.requests, bytes: 0 }),
            _ => {}
        }
        let under_way = wire.requests.iter().chain(&running);
        let (requests, bytes) =
            under_way.fold((0, 0), |(n, sum), &size| (n + 1, sum + size as u64));
        assert!(requests <= window.requests && bytes <= window.bytes);
    }
    while let Some(size) = wire.requests.pop_front() {
        server.on_request(size).expect("the client keeps to what it was granted");
        running.push(size);
    }
    running.into_iter().for_each(|bytes| end(&mut server, bytes, &mut wire));
    wire.credits.into_iter().for_each(|it| client.on_credit(it));
    assert!(client.allows(MOST));
});

/// A copy ended, and its last frame left.
fn end(server: &mut Granter, bytes: usize, wire: &mut Wire) {
    let freed = Credit { requests: 1, bytes: bytes as u64 };
    let grants = server.would_grant(freed);
    server.give_back(freed);
    let granted = server.poll_grant();
    assert_eq!(granted.is_some(), grants);
    wire.credits.extend(granted);
}
