//! `bowline simulate` and `bowline predict`, as their user has them.

use std::fs;
use std::path::Path;

use crate::command::{bowline, run, text};

/// A simulation of few calls.
const SMALL: &str = "simulate --calls 12000 --rounds 2 --hedge-percentiles 95% --staggers auto";

fn says(folder: &Path, line: &str) -> (bool, String, String) {
    let output = run(bowline(folder, line));
    (output.status.success(), text(&output.stdout), text(&output.stderr))
}

/// What begins so, up to its end, however many lines it takes.
fn sentence(text: &str, start: &str) -> String {
    let lines = text.lines().skip_while(|line| !line.starts_with(start));
    let words = lines.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ");
    words.split_once(". ").map_or(words.clone(), |(sentence, _)| sentence.to_owned())
}

#[test]
fn a_simulation_prints_a_line_a_sentence_and_a_folder() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (good, out, err) = says(folder.path(), SMALL);
    assert!(good, "{err}");
    assert!(out.starts_with("SIMULATED, not measured"), "{out}");
    for policy in ["none", "hedged-p95", "tied"] {
        assert!(out.lines().any(|line| line.starts_with(&format!("{policy} "))), "{policy}: {out}");
    }
    // Stalls of 60 ms in one replica of three: what Bowline is for.
    let tied = sentence(&out, "tied: ");
    assert!(tied.contains("shortens") && tied.contains("p99 to 0."), "{tied}");
    let files = folder.path().join("bowline-simulation");
    let svg = fs::read_to_string(files.join("latency.svg")).expect("a picture");
    assert!(svg.contains("hedged-p95") && svg.ends_with("</svg>\n"));
    let results = fs::read_to_string(files.join("results.json")).expect("results");
    assert!(results.contains("\"simulated\": true") && results.contains("\"verdicts\": ["));
    assert!(files.join("report.html").exists() && files.join("latency.hlog").exists());
}

#[test]
fn a_seed_names_the_figures_whatever_the_threads() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let figures = |options: &str| {
        let (good, out, err) = says(folder.path(), &SMALL.replace("12000", options));
        assert!(good, "{err}");
        out
    };
    let one = figures("3000 --threads 1 --seed 7");
    assert_eq!(one, figures("3000 --threads 3 --seed 7"));
    assert_ne!(one, figures("3000 --threads 1 --seed 8"));
}

#[test]
fn replicas_that_are_slow_together_leave_a_hedge_nothing_to_win() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    // Every 500 ms one of the replicas takes 80 ms instead of 2 ms, for 50 ms: each its own, or all
    // together.
    let trace = |together: bool| {
        let rows = (0..3 * 1500).map(|n| {
            let (window, replica) = (n / 3, n % 3);
            let (stall, phase) = (window / 50, window % 50);
            let slow = phase < 5 && (together || stall % 3 == replica);
            format!("{},{replica},{}\n", 10 * window, if slow { 80 } else { 2 })
        });
        format!("at_ms,replica,took_ms\n{}", rows.collect::<String>())
    };
    let ratio = |name: &str, together| {
        fs::write(folder.path().join(name), trace(together)).expect("writable");
        let line = format!(
            "simulate --calls 20000 --rounds 1 --policies none,hedged --hedge-percentiles 95% \
             --budgets 30% --rate 1000 --slots 64 --faults off --service trace:{name}"
        );
        let (good, out, err) = says(folder.path(), &line);
        assert!(good, "{err}");
        sentence(&out, "hedged-p95: ")
    };
    let apart = ratio("apart.csv", false);
    assert!(apart.contains("p99 to 0.0"), "{apart}");
    let together = ratio("together.csv", true);
    assert!(together.contains("shortens no percentile"), "{together}");
}

#[test]
fn a_replica_that_is_slowed_in_a_stall_harms_less_than_one_that_stands_still() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let beyond = |slowed: &str| {
        let line = format!(
            "simulate --calls 20000 --rounds 1 --policies none --service fixed:2ms --faults all \
             --stall 100ms --stall-gap 400ms --out report {slowed}"
        );
        let (good, out, err) = says(folder.path(), &line);
        assert!(good, "{err}");
        let json = fs::read_to_string(folder.path().join("report/results.json")).expect("there");
        (out, json)
    };
    let (still, halved) = (beyond(""), beyond("--fault-kinds slow:2x"));
    assert!(halved.1.contains("; slow:2.00x"), "{}", halved.1);
    assert!(still.1.contains("400 ms apart; stall"));
    // A request of 2 ms that is served at half the speed takes 4 ms; one that waits for a replica
    // to go on, tens of them.
    let p99 = |out: &str| {
        let line = out.lines().find(|line| line.starts_with("none ")).expect("a row").to_owned();
        line.split("  ").filter(|cell| !cell.trim().is_empty()).nth(3).expect("p99").to_owned()
    };
    assert!(p99(&halved.0).trim().starts_with("4.1"), "{}", halved.0);
    assert_ne!(p99(&still.0), p99(&halved.0));
}

#[test]
fn each_way_to_pick_a_replica_makes_figures_of_its_own() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let row = |pick: &str| {
        let line = format!(
            "simulate --calls 3000 --rounds 1 --policies none --faults one --fault-kinds slow:3x \
             --pick {pick}"
        );
        let (good, out, err) = says(folder.path(), &line);
        assert!(good, "{pick}: {err}");
        out.lines().find(|line| line.starts_with("none ")).expect("a row").to_owned()
    };
    let rows = ["round-robin", "two-choices", "hot-cold", "c3"].map(row);
    for (n, one) in rows.iter().enumerate() {
        assert!(!rows[..n].contains(one), "{rows:#?}");
    }
}

#[test]
fn a_simulation_draws_from_the_histogram_of_a_report() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (good, _, err) = says(folder.path(), &format!("{SMALL} --out first"));
    assert!(good, "{err}");
    let line = format!("{SMALL} --service hdr:first/latency.hlog,tag=none --faults off --load 20%");
    let (good, out, err) = says(folder.path(), &line);
    assert!(good, "{err}\n{out}");
    let (good, out, err) =
        says(folder.path(), "predict --service hdr:first/latency.hlog,tag=none --load 20%");
    assert!(good && out.contains("as in first/latency.hlog, tag none"), "{err}\n{out}");
    assert!(out.contains("waited for counts as service"), "{out}");
}

#[test]
fn a_prediction_stands_beside_its_assumptions_and_its_simulation() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let line = "predict --service exp:1ms --slots 1 --replicas 2 --load 50% --network 0";
    let (good, out, err) = says(folder.path(), line);
    assert!(good, "{err}");
    // The closed forms, in milliseconds.
    let figures = |start: &str| -> Vec<String> {
        let line =
            out.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{out}"));
        line.split("  ").map(|cell| cell.trim().to_owned()).filter(|c| !c.is_empty()).collect()
    };
    assert_eq!(figures("one copy: M/M/1")[1..5], ["2.00 ms", "1.39 ms", "4.61 ms", "9.21 ms"]);
    assert_eq!(
        figures("tied, two replicas: M/M/2")[1..5],
        ["1.33 ms", "974 us", "2.99 ms", "5.67 ms"]
    );
    assert_eq!(figures("hedge at p90")[6], "10.0 %", "{out}");
    assert!(out.lines().all(|line| line.chars().count() <= 80), "{out}");
    assert!(out.starts_with("PREDICTED by formulas, not measured"));
    assert!(out.matches("Assumes: ").count() >= 4, "{out}");
    assert!(out.contains("slowest of 100") && out.contains("63.4 %"), "{out}");

    let line = format!("{line} --simulate --calls 20000");
    let (good, out, err) = says(folder.path(), &line);
    assert!(good, "{err}");
    assert!(out.contains("  simulated ") && out.contains("  formula off by "), "{out}");
}

#[test]
fn a_prediction_gives_a_hedge_nothing_where_it_has_nothing_to_win() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let predict = |options: &str| {
        let line = format!("predict --service exp:1ms --slots 1 --load 50% --network 0 {options}");
        let (good, out, err) = says(folder.path(), &line);
        assert!(good, "{err}");
        out
    };
    let times = |out: &str, start: &str| -> Vec<String> {
        let line = out.lines().find(|line| line.starts_with(start));
        let line = line.unwrap_or_else(|| panic!("no {start:?} in:\n{out}"));
        let cells = line.split("  ").map(|cell| cell.trim().to_owned());
        cells.filter(|cell| !cell.is_empty()).skip(1).take(5).collect()
    };
    let identical = predict("--replicas 2 --copies identical");
    assert_eq!(times(&identical, "hedge at p90"), times(&identical, "one copy"));
    let apart = predict("--replicas 2");
    assert_ne!(times(&apart, "hedge at p90"), times(&apart, "one copy"));
    let alone = predict("--replicas 1");
    assert!(!alone.contains("hedge at") && alone.contains("nowhere to hedge to"), "{alone}");
}

#[test]
fn what_cannot_be_modelled_is_one_line_that_names_the_option_and_the_cure() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::write(folder.path().join("bad.csv"), "at_us,replica,took_us\n1,0,5\n2,0,soon\n")
        .expect("writable");
    fs::write(folder.path().join("one.csv"), "at_us,replica,took_us\n1,0,5\n").expect("writable");
    fs::create_dir(folder.path().join("taken")).expect("writable");
    fs::write(folder.path().join("taken/latency.svg"), "precious").expect("writable");
    for (line, told) in [
        ("simulate --service frantic:1ms", "--service"),
        ("simulate --service trace:bad.csv", "bad.csv:3: \"soon\" is no time"),
        ("simulate --service trace:one.csv", "--replicas is 3: give at most 1"),
        ("simulate --service trace:one.csv --replicas 1 --copies identical", "--copies identical"),
        ("simulate --service hdr:nowhere.hlog", "nowhere.hlog"),
        ("simulate --rate 100 --load 50%", "cannot be used with"),
        ("simulate --load 0%", "--load"),
        ("simulate --rate 1 --calls 100000", "--calls"),
        ("simulate --network 1s", "--network"),
        ("simulate --hedge-percentiles 95%,95%", "'hedged-p95'"),
        ("simulate --hedge-percentiles 10%", "--hedge-percentiles must lie between"),
        ("simulate --policies none,tied,tied", "both 'tied'"),
        ("simulate --staggers soon", "or auto"),
        ("simulate --budgets 1%,2%,3%,4%,5%,6%,7%,8%,9%,10%,11%,12%,13%,14%,15%", "at most 64"),
        ("simulate --out taken", "latency.svg"),
        ("simulate --calls 0", "--calls"),
        ("predict --service hdr:bad.csv", "trace:FILE"),
        ("predict --hedge-percentiles 10%", "--hedge-percentiles"),
        ("predict --fan-out 0", "--fan-out"),
        ("predict --surge 0.5", "--surge"),
    ] {
        let (good, out, err) = says(folder.path(), line);
        assert!(!good && out.is_empty(), "{line}: {out}");
        assert!(err.contains(told), "{line}: {err}");
        let wrong: Vec<&str> = err.lines().filter(|line| line.starts_with("bowline: ")).collect();
        assert_eq!(wrong.len(), 1, "{line}: {err}");
    }
    let kept = fs::read_to_string(folder.path().join("taken/latency.svg")).expect("readable");
    assert_eq!(kept, "precious");
}

#[test]
fn of_several_loads_each_has_its_folder_and_all_have_a_table_and_a_picture() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (good, out, err) = says(folder.path(), &format!("{SMALL} --load 30%,85% --faults off"));
    assert!(good, "{err}");
    assert!(out.lines().all(|line| line.chars().count() <= 80), "{out}");
    let (_, overview) = out.split_once("p99 at ").unwrap_or_else(|| panic!("{out}"));
    for load in ["30 %", "85 %"] {
        assert!(overview.contains(&format!("\n{load}: ")), "{out}");
    }
    let files = folder.path().join("bowline-simulation");
    for file in ["load-30/results.json", "load-85/latency.svg", "load-85/report.html", "loads.svg"]
    {
        assert!(files.join(file).exists(), "{file}: {out}");
    }
    let p99 = |load: &str| {
        let json = fs::read_to_string(files.join(load).join("results.json")).expect("results");
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        json["policies"]["none"]["p99_us"].as_f64().expect("a time")
    };
    assert!(p99("load-85") > p99("load-30"), "{out}");
}

#[test]
fn replicas_that_crash_and_come_back_lose_no_call_and_no_count() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for kinds in ["crash", "network:20x", "crash,stall,slow:3x"] {
        let line = format!("{SMALL} --fault-kinds {kinds}");
        let (good, out, err) = says(folder.path(), &line);
        assert!(good, "{kinds}: {err}");
        let json = fs::read_to_string(folder.path().join("bowline-simulation/results.json"));
        let json: serde_json::Value = serde_json::from_str(&json.expect("there")).expect("JSON");
        let tied = &json["policies"]["tied"];
        assert_eq!(tied["ok"], 24_000, "{kinds}: {out}");
        // Copies that died with a replica had been counted, too.
        assert!(tied["executions_per_call"].as_f64().is_some_and(|all| all >= 1.0), "{out}");
        for name in ["none", "hedged-p95", "tied"] {
            let counters = &json["policies"][name]["counters"];
            let of = |name: &str| counters[name].as_u64().expect("a number");
            let ends = ["answered", "withdrawn", "withdrawn_by_caller", "aborted", "shed", "lost"];
            assert_eq!(ends.map(of).iter().sum::<u64>(), of("attempts"), "{kinds}, {name}");
        }
    }
}
