use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::time::Duration;

use bowline_protocol::{ClientId, Frame, Goodbye, GoodbyeReason, Method, TrafficClass};
use bowline_runtime::{JoinHandle, Stage, spawn, spawn_at, timeout};
use tracing::{info, warn};

use super::call::Call;
use super::config::{Config, ConnectError, Replica};
use super::connection::Terms;
use super::live::Live;
use super::members::Members;
use super::numbers::{self, Numbers, Snapshot};
use super::shell::Shell;
use super::timer;
use crate::core::{Calls, Classifier, ConfigError, Counters, Policy, PolicyId, Shadowed, Trial};

/// A client on this core. Clones are handles of the same one; when the last is gone, with the last
/// call, its connections close.
#[derive(Clone)]
pub struct Client {
    shared: Rc<Shared>,
}

/// What handles and calls hold, and tasks do not.
pub(super) struct Shared {
    pub(super) shell: Rc<Shell>,
    pub(super) config: Config,
    members: Rc<Members>,
    tasks: Vec<JoinHandle<()>>,
    published: RefCell<Vec<JoinHandle<()>>>,
}

impl Client {
    /// Connects to the replicas. It returns when all are connected, or, after
    /// [`Config::connect_wait`], when at least one is; to the others it goes on dialling. Settings that
    /// together can't do what they say are logged as warnings.
    ///
    /// # Errors
    ///
    /// [`ConnectError`]: a setting out of its range, or no replica in reach.
    ///
    /// # Panics
    ///
    /// Outside a runtime.
    pub async fn connect(config: Config) -> Result<Client, ConnectError> {
        config.tell()?;
        Client::connect_one(config).await
    }

    /// On one of several cores, which has nothing to tell of the configuration.
    pub(super) async fn connect_one(config: Config) -> Result<Client, ConnectError> {
        let client = Client::begin(&config)?;
        let shell = client.shared.shell.clone();
        let wanted = config.replicas.len();
        let all = async {
            while client.connected() < wanted {
                shell.changed.notified().await;
            }
        };
        if timeout(config.connect_wait, all).await.is_err() && client.connected() == 0 {
            let state = shell.state.borrow();
            let of = |replica: &Replica| {
                let last = state.last_errors.get(&replica.id.0).map(String::as_str);
                let last = last.unwrap_or("it has not answered yet");
                format!("replica {} at {}: {last}", replica.id, replica.address)
            };
            let each = config.replicas.iter().map(of).collect::<Vec<_>>().join("; ");
            return Err(ConnectError::NoReplica { within: config.connect_wait, each });
        }
        Ok(client)
    }

    /// A client whose tasks have been spawned.
    fn begin(config: &Config) -> Result<Client, ConnectError> {
        config.check()?;
        let id = getrandom::u64().map_err(|error| ConnectError::Random(error.to_string()))?;
        let mut core = config.core.clone();
        if core.seed == 0 {
            core.seed = id;
        }
        let seed = core.seed;
        let shell = Rc::new(Shell::new(Calls::new(ClientId(id), core)?));
        shell.follow(config)?;
        let terms = Terms {
            client: ClientId(id),
            seed,
            link: config.link,
            dial: config.dial,
            backoff: config.backoff,
            max_reply: config.max_reply,
            reply_budget: config.reply_budget,
            payload_checksums: config.payload_checksums,
            methods: config.service.map(|service| service.to_methods()),
        };
        let members = Rc::new(Members::new(shell.clone(), terms));
        members.follow(config);
        let mut tasks = vec![spawn_at(Stage::Decide, timer::drive(shell.clone()))];
        if let Some(live) = &config.live {
            let followed = follow(live.clone(), shell.clone(), members.clone());
            tasks.push(spawn_at(Stage::Input, followed));
        }
        Ok(Client {
            shared: Rc::new(Shared {
                shell,
                config: config.clone(),
                members,
                tasks,
                published: RefCell::default(),
            }),
        })
    }

    /// A call whose payload `encode` writes.
    pub(super) fn encode_call<E>(
        &self,
        method: Method,
        encode: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<Call, E> {
        let mut payload = self.shared.shell.pool.empty(0);
        encode(payload.as_mut())?;
        Ok(Call::of(self.shared.clone(), method, payload))
    }

    /// A call to be awaited. The payload is copied.
    pub fn call(&self, method: Method, payload: impl AsRef<[u8]>) -> Call {
        Call::new(self.shared.clone(), method, payload.as_ref())
    }

    /// Adds a policy for calls to name.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] for the first setting that is out of its range.
    pub fn register(&self, policy: Policy) -> Result<PolicyId, ConfigError> {
        self.shared.shell.state.borrow_mut().calls.register(policy)
    }

    /// Adds a policy with its own view of which replies count, in place of what the configuration says
    /// of a method.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] for the first setting that is out of its range.
    pub fn register_with(
        &self,
        policy: Policy,
        classifier: Classifier,
    ) -> Result<PolicyId, ConfigError> {
        self.shared.shell.state.borrow_mut().calls.register_with(policy, classifier)
    }

    /// Puts another policy in the place of one; calls that start from now on follow it.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] for the first setting that is out of its range; the old one stays then.
    pub fn replace(&self, id: PolicyId, policy: Policy) -> Result<(), ConfigError> {
        self.shared.shell.state.borrow_mut().calls.replace(id, policy)
    }

    /// What came of the policy that is on trial for a method's calls of a class, if one is.
    pub fn trial(&self, method: Method, class: Option<TrafficClass>) -> Option<Trial> {
        let state = self.shared.shell.state.borrow();
        state.calls.trial(state.methods.policy(method, class)?).cloned()
    }

    /// What the policies that are only thought of would have done with a method's calls of a class.
    pub fn shadows(&self, method: Method, class: Option<TrafficClass>) -> Vec<Shadowed> {
        let state = self.shared.shell.state.borrow();
        let policy = state.methods.policy(method, class);
        policy.map_or_else(Vec::new, |policy| state.calls.shadows(policy).to_vec())
    }

    /// How many replicas are connected.
    pub fn connected(&self) -> usize {
        self.shared.shell.state.borrow().lines.iter().flatten().count()
    }

    /// The configuration that it follows, as it is now, if it follows one; see
    /// [`Live::set`](super::Live::set) for what of that it does not follow.
    pub fn config(&self) -> Config {
        self.shared.config.current()
    }

    /// What has happened so far. Cheap.
    pub fn counters(&self) -> Counters {
        self.shared.shell.state.borrow().calls.counters()
    }

    /// All that is known, histograms included: a copy of some 60 KiB.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::take(&self.shared.shell)
    }

    /// From now on puts a snapshot there as often as that, under this core's number, for as long as
    /// the client lives.
    pub fn publish(&self, numbers: &Numbers, core: usize, every: Duration) {
        let shell = self.shared.shell.clone();
        let task = spawn(numbers::publish(shell, numbers.clone(), core, every));
        self.shared.published.borrow_mut().push(task);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        self.published.borrow().iter().for_each(JoinHandle::abort);
        self.members.end();
        let Ok(mut state) = self.shell.state.try_borrow_mut() else { return };
        let goodbye = Goodbye { reason: GoodbyeReason::Leaving };
        for line in state.lines.iter_mut().filter_map(Option::take) {
            line.send(&Frame::Goodbye(goodbye, &[]));
        }
    }
}

/// Puts every configuration in place that is set from now on; and the one that was, in case it was
/// set since the client was configured.
async fn follow(live: Live, shell: Rc<Shell>, members: Rc<Members>) {
    let mut seen = u64::MAX;
    loop {
        let (generation, config) = poll_fn(|context| live.poll_changed(seen, context)).await;
        seen = generation;
        members.follow(&config);
        match shell.follow(&config) {
            Ok(()) => info!(generation, replicas = config.replicas.len(), "configured"),
            Err(error) => warn!(generation, "a part of it stays as it was: {error}"),
        }
        shell.pump();
    }
}
