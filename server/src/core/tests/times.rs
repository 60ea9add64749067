//! What is measured.

use super::*;

fn count_and_max(histogram: &hdrhistogram::Histogram<u32>) -> (u64, u64) {
    (histogram.len(), (histogram.max() + 500_000) / 1_000_000)
}

#[test]
fn waits_and_services_are_measured_for_each_method() {
    let mut bench = Bench::new();
    let read = bench.start(plain(1));
    bench.request(Request { method: SCAN, ..plain(2) });
    bench.turn();
    bench.now += ms(8);
    bench.finish(read);
    let scan = bench.turn().one_start().copy;
    bench.now += ms(3);
    bench.core.on_aborted(scan, bench.now);
    let methods = &bench.core.histograms().methods;
    assert_eq!(
        methods.iter().map(|times| times.method).collect::<Vec<_>>(),
        [READ, WRITE, SCAN, PAY]
    );
    assert_eq!(
        (count_and_max(&methods[0].wait), count_and_max(&methods[0].service)),
        ((1, 0), (1, 8))
    );
    assert_eq!(count_and_max(&methods[1].wait), (0, 0));
    assert_eq!(
        (count_and_max(&methods[2].wait), count_and_max(&methods[2].service)),
        ((1, 8), (1, 3))
    );
}

#[test]
fn it_is_measured_how_long_a_copy_runs_on_after_it_was_asked_to_stop() {
    let mut bench = Bench::new();
    let copy = bench.start(plain(1));
    bench.now += ms(4);
    bench.client(caller_done(plain(1)));
    bench.now += ms(7);
    bench.client(caller_done(plain(1)));
    bench.now += ms(2);
    bench.finish(copy);
    assert_eq!(count_and_max(&bench.core.histograms().stop), (1, 9));
    assert_eq!(bench.core.histograms().orphan.len(), 0);
}

#[test]
fn it_is_measured_how_long_work_goes_on_for_a_connection_that_is_gone() {
    let mut bench = Bench::new();
    let copy = bench.start(plain(1));
    bench.client(caller_done(plain(1)));
    bench.now += ms(10);
    bench.core.on_closed(bench.conn, bench.now);
    bench.now += ms(6);
    bench.finish(copy);
    assert_eq!(count_and_max(&bench.core.histograms().orphan), (1, 6));
    assert_eq!(count_and_max(&bench.core.histograms().stop), (1, 16));
}

#[test]
fn the_times_of_several_cores_are_added_up() {
    let mut all = Bench::new();
    let copy = all.start(plain(1));
    all.finish(copy);
    let mut sum = all.core.histograms().clone();
    sum.add(all.core.histograms());
    assert_eq!(sum.methods[0].service.len(), 2);
}
