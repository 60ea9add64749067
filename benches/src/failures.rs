//! What went wrong with the replicas themselves: figures of such a run compare nothing.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;

/// Failures so far, by the number of the replica.
#[derive(Clone, Debug, Default)]
pub struct Failures {
    corrupt: BTreeMap<usize, u64>,
    deaths: BTreeMap<usize, String>,
}

impl Failures {
    /// Notes blocks of `replica` that were not what was asked for.
    pub fn sent_corrupt(&mut self, replica: usize, blocks: u64) {
        *self.corrupt.entry(replica).or_default() += blocks;
    }

    /// Notes that a replica of ours has ended by `when`, unless that is known.
    pub fn died(&mut self, replica: usize, process: u32, status: ExitStatus, when: &str) {
        let how = match status.signal() {
            Some(signal) => format!("was killed by signal {signal}"),
            None => format!("ended with {status}"),
        };
        self.deaths
            .entry(replica)
            .or_insert_with(|| format!("replica {replica} (process {process}) {how} in {when}."));
    }

    /// A sentence for each failure; `files` are the replicas' data, where they are ours.
    pub fn sentences(&self, addresses: &[SocketAddr], files: &[PathBuf]) -> Vec<String> {
        let corrupt = self.corrupt.iter().map(|(&replica, &blocks)| {
            let place = addresses.get(replica).map(|at| format!(" at {at}")).unwrap_or_default();
            let cure = match files.get(replica) {
                Some(file) => {
                    let file = file.display();
                    format!("the data in {file} is damaged: remove that file and run again.")
                }
                None => "its data is damaged: remove its file and start it again.".to_owned(),
            };
            let noun = if blocks == 1 { "block" } else { "blocks" };
            format!("{blocks} {noun} from replica {replica}{place} failed the checksum; {cure}")
        });
        let gone = !addresses.is_empty() && self.deaths.len() == addresses.len();
        let end = gone.then(|| "no replica was left, and the run ended early.".to_owned());
        self.deaths.values().cloned().chain(end).chain(corrupt).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses() -> [SocketAddr; 2] {
        ["127.0.0.1:7000", "127.0.0.1:7001"].map(|at| at.parse().expect("an address"))
    }

    #[test]
    fn damaged_data_is_told_with_its_replica_its_file_and_the_cure() {
        let mut failures = Failures::default();
        assert!(failures.sentences(&addresses(), &[]).is_empty());
        failures.sent_corrupt(1, 500);
        failures.sent_corrupt(1, 93);
        let told = failures.sentences(&addresses(), &["a.dat".into(), "b.dat".into()]).join("");
        for part in ["593 blocks", "replica 1 at 127.0.0.1:7001", "b.dat", "remove"] {
            assert!(told.contains(part), "{told}");
        }
        let told = failures.sentences(&addresses(), &[]).join("");
        assert!(told.contains("replica 1") && told.contains("remove its file"), "{told}");
    }

    #[test]
    fn a_death_is_told_once_with_its_first_moment() {
        let mut failures = Failures::default();
        failures.died(1, 77, ExitStatus::from_raw(9), "round 2, hedged");
        failures.died(1, 77, ExitStatus::from_raw(9), "round 2, tied");
        let told = failures.sentences(&addresses(), &[]);
        assert_eq!(told.len(), 1, "{told:?}");
        for part in ["replica 1 (process 77)", "killed by signal 9", "round 2", "hedged"] {
            assert!(told[0].contains(part), "{told:?}");
        }
        failures.died(0, 76, ExitStatus::from_raw(256), "round 3");
        let told = failures.sentences(&addresses(), &[]).join("\n");
        assert!(told.contains("exit status: 1") && told.contains("no replica was left"), "{told}");
    }
}
