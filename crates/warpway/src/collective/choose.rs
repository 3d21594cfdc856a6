//! From a call to a plan that is set up: chosen, proven and prepared at first use, kept per communicator.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use warpway_collectives::{
    Algorithm, Choice, Explanation, Function, MOST_BLOCKS, NoChoice, Refused, Registered, Registration,
    Request, Selector, Taken, Task, World,
};
use warpway_core::collective::CollectiveError;
use warpway_core::execution::ExecutionError;
use warpway_core::{Error, Result};
use warpway_host::{MAX_BLOCKS, PlanLaunch, PrepareOptions, PreparedPlan};
use warpway_plan::verify::VerifiedPlan;
use warpway_plan::{DataType, ReduceOp};

use super::call::Call;
use super::message::{Message, Place};
use super::settings::Settings;
use super::sizes;
use crate::communicator::Communicator;

/// The collectives of one communicator.
#[derive(Debug)]
pub(crate) struct Collectives {
    place: Place,
    world: World,
    /// See [`Request::room`].
    room: u32,
    settings: Settings,
    /// Whether the settings have been compared with the other ranks; held while they are, since that is done once.
    compared: Mutex<bool>,
    selector: Mutex<Selector>,
    kept: KeptPlans,
    /// What has been set up: calls with different types and sizes may share a plan.
    prepared: Mutex<Vec<(Origin, PreparedPlan)>>,
    /// Held while a plan is set up: of threads that make the same call one sets it up, as on the other ranks.
    setting_up: Mutex<()>,
}

/// Where a plan comes from.
#[derive(Debug, Clone)]
enum Origin {
    Catalogue(&'static Algorithm, Task),
    Registered(Arc<Registered>),
}

impl PartialEq for Origin {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Catalogue(one, task), Self::Catalogue(two, other)) => {
                one.name == two.name && task == other
            }
            (Self::Registered(one), Self::Registered(two)) => Arc::ptr_eq(one, two),
            _ => false,
        }
    }
}

/// What earlier calls have taken, found again without a lock: short calls would notice one.
#[derive(Debug, Default)]
struct KeptPlans {
    /// Those of earlier generations stay, and serve nobody.
    all: boxcar::Vec<Kept>,
    /// The last one found: mostly the next one, too.
    recent: AtomicUsize,
    /// Raised when calls may take something else from now on.
    generation: AtomicU64,
}

/// A plan that is set up, and the calls that take it.
#[derive(Debug)]
struct Kept {
    generation: u64,
    key: Key,
    min_bytes: u64,
    max_bytes: u64,
    /// What the call named; compared apart from the key so that calls need not own their names.
    algorithm: Option<Box<str>>,
    plan: PreparedPlan,
}

/// What a choice depends on besides sizes and names, of one communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Key {
    function: Function,
    data_type: DataType,
    reduce_op: Option<ReduceOp>,
    root: u32,
    in_place: bool,
    blocks: Option<u32>,
}

impl Key {
    fn of(call: &Call<'_>, in_place: bool) -> Self {
        Self {
            function: call.function,
            data_type: call.data_type,
            reduce_op: call.function.reduces().then_some(call.reduce_op),
            root: if call.function.is_rooted() { call.root } else { 0 },
            in_place,
            blocks: call.blocks,
        }
    }

    /// Equal to [`of`](Self::of) of the call, field by field: the whole would be put together first.
    #[inline]
    fn is_of(&self, call: &Call<'_>, in_place: bool) -> bool {
        let function = call.function;
        self.function == function
            && self.data_type == call.data_type
            && self.reduce_op.is_none_or(|op| op == call.reduce_op)
            && (!function.is_rooted() || self.root == call.root)
            && self.in_place == in_place
            && self.blocks == call.blocks
    }
}

/// Proofs of one context: ranks that are threads of a process prove once.
#[derive(Debug, Default)]
pub(crate) struct Proofs(Mutex<HashMap<(Task, &'static str), Arc<Proof>>>);

type Proof = OnceLock<Result<Arc<VerifiedPlan>, Refused>>;

impl Proofs {
    fn prove(&self, algorithm: &'static Algorithm, task: &Task) -> Result<Arc<VerifiedPlan>, Refused> {
        let key = (task.clone(), algorithm.name);
        let proof = Arc::clone(lock(&self.0).entry(key).or_default());
        // Outside the lock: others may prove something else meanwhile.
        proof.get_or_init(|| algorithm.prove(task).map(Arc::new)).clone()
    }
}

impl Collectives {
    /// What can be found out without the other ranks.
    pub(crate) fn new(comm: &Communicator) -> Result<Self> {
        let place = Place { rank: comm.rank(), n_ranks: comm.n_ranks() };
        let Surroundings { world, room, cores } = surroundings(comm);
        let (selector, settings) = Settings::read(comm.config(), cores)?;
        let compared = Mutex::new(false);
        let (selector, kept, prepared) = (Mutex::new(selector), KeptPlans::default(), Mutex::default());
        let setting_up = Mutex::default();
        Ok(Self { place, world, room, settings, compared, selector, kept, prepared, setting_up })
    }

    /// Carries a call out.
    pub(crate) fn run(&self, comm: &Communicator, call: &Call<'_>) -> Result<()> {
        let message = Message::of(call, self.place).inspect_err(|why| self.refuse(comm, call, why))?;
        let kept = match self.kept.find(call, &message) {
            Some(kept) => kept,
            None => self.set_up(comm, call, &message)?,
        };
        let launch =
            PlanLaunch::new(message.input, message.output, call.data_type).with_packets(call.packets);
        if !call.function.is_sized() {
            return kept.plan.run(&launch);
        }
        let own = kept.plan.plan().ranks.get(self.place.rank as usize);
        let no_rank = Error::Internal { place: "collective", what: "a plan that is set up has all ranks" };
        let rows = sizes::rows(call, self.place, own.ok_or(no_rank)?);
        let rows = rows.inspect_err(|why| self.refuse(comm, call, why))?;
        kept.plan.run(&launch.with_sizes(&rows))
    }

    /// This rank does not carry a call out, but the others may: they are told. At the first call that takes their coming,
    /// like any other.
    fn refuse(&self, comm: &Communicator, call: &Call<'_>, why: &Error) {
        if self.place.n_ranks == 1 || comm.async_error().is_some() {
            return;
        }
        match self.compare(comm).and_then(|()| comm.executor()) {
            Ok(executor) => executor.refuse(call.function.name(), why),
            Err(error) => tracing::warn!("the other ranks have not been told that {why}: {error}"),
        }
    }

    /// Compares the settings with the other ranks, once.
    fn compare(&self, comm: &Communicator) -> Result<()> {
        let mut compared = lock(&self.compared);
        if !*compared {
            self.settings.compare(comm)?;
            *compared = true;
        }
        Ok(())
    }

    /// Which algorithm a call takes.
    pub(crate) fn explain(&self, call: &Call<'_>) -> Result<Explanation> {
        let message = Message::of(call, self.place)?;
        let request = self.request(call, &message);
        lock(&self.selector).explain(&request).map_err(|why| self.no_choice(call, &why))
    }

    /// Adds a plan of the user.
    pub(crate) fn register(&self, plan: VerifiedPlan, registration: Registration) -> Result<()> {
        let name = plan.plan().name.clone();
        let plan = Registered::new(plan, registration)
            .map_err(|error| ExecutionError::Refused { plan: name, why: error.why })?;
        lock(&self.selector).register(Arc::new(plan));
        self.kept.forget_all();
        Ok(())
    }

    /// Collective: all ranks come here in the same call.
    fn set_up(&self, comm: &Communicator, call: &Call<'_>, message: &Message<'_>) -> Result<&Kept> {
        let key = Key::of(call, message.in_place);
        // Before the choice: it may be outdated as soon as it is made.
        let generation = self.kept.generation();
        let request = self.request(call, message);
        let choice = lock(&self.selector).choose(&request).map_err(|why| self.no_choice(call, &why));
        let choice = choice.inspect_err(|why| self.refuse(comm, call, why))?;
        let Choice { taken, blocks, min_bytes, max_bytes, reason, passed_over } = choice;
        for text in passed_over {
            tracing::warn!("{} of {:?} bytes: {text}", call.function, message.bytes);
        }
        tracing::debug!("{} of {:?} bytes by {}: {reason}", call.function, message.bytes, taken.name());
        let origin = match taken {
            Taken::Catalogue(algorithm) => Origin::Catalogue(algorithm, request.task.with_blocks(blocks)),
            Taken::Registered(registered) => Origin::Registered(registered),
        };
        let plan = self.prepare(comm, call, origin)?;
        let algorithm = call.algorithm.map(Box::from);
        let what = "what was kept is there";
        let kept = self.kept.keep(Kept { generation, key, min_bytes, max_bytes, algorithm, plan });
        kept.ok_or(Error::Internal { place: "collective", what })
    }

    /// The plan, set up now or earlier.
    fn prepare(&self, comm: &Communicator, call: &Call<'_>, origin: Origin) -> Result<PreparedPlan> {
        let known =
            || lock(&self.prepared).iter().find(|(other, _)| *other == origin).map(|(_, plan)| plan.clone());
        if let Some(plan) = known() {
            return Ok(plan);
        }
        let _turn = lock(&self.setting_up);
        if let Some(plan) = known() {
            return Ok(plan);
        }
        self.compare(comm)?;
        let options = PrepareOptions { function: Some(call.function.name()), ..PrepareOptions::default() };
        let plan = match &origin {
            Origin::Catalogue(algorithm, task) => {
                let proven = comm.context().proofs().prove(algorithm, task);
                let proven = proven.map_err(|refused| self.refused(call, refused.to_string()));
                let proven = proven.inspect_err(|why| self.refuse(comm, call, why))?;
                comm.prepare_with(&proven, options)?
            }
            Origin::Registered(registered) => comm.prepare_with(&registered.plan, options)?,
        };
        lock(&self.prepared).push((origin, plan.clone()));
        Ok(plan)
    }

    fn request<'a>(&self, call: &Call<'a>, message: &Message<'_>) -> Request<'a> {
        let task = Task {
            function: call.function,
            world: self.world.clone(),
            root: if call.function.is_rooted() { call.root } else { 0 },
            reduce_op: if call.function.reduces() { call.reduce_op } else { ReduceOp::Sum },
            in_place: message.in_place,
            n_blocks: 1,
            packet_blocks: 1,
        };
        Request {
            task,
            bytes: message.bytes,
            data_type: call.data_type,
            room: self.room,
            algorithm: call.algorithm,
            blocks: call.blocks,
        }
    }

    fn no_choice(&self, call: &Call<'_>, why: &NoChoice) -> Error {
        self.refused(call, why.to_string())
    }

    fn refused(&self, call: &Call<'_>, why: String) -> Error {
        let (rank, function) = (self.place.rank, call.function.name());
        CollectiveError::NoAlgorithm { rank, function, why }.into()
    }
}

impl KeptPlans {
    #[inline]
    fn find(&self, call: &Call<'_>, message: &Message<'_>) -> Option<&Kept> {
        let generation = self.generation();
        let serves = |kept: &Kept| kept.generation == generation && kept.serves(call, message);
        // Relaxed: a hint only.
        match self.all.get(self.recent.load(Ordering::Relaxed)) {
            Some(kept) if serves(kept) => Some(kept),
            _ => self.search(serves),
        }
    }

    fn search(&self, serves: impl Fn(&Kept) -> bool) -> Option<&Kept> {
        let (at, kept) = self.all.iter().find(|(_, kept)| serves(kept))?;
        self.recent.store(at, Ordering::Relaxed);
        Some(kept)
    }

    fn keep(&self, kept: Kept) -> Option<&Kept> {
        let at = self.all.push(kept);
        self.recent.store(at, Ordering::Relaxed);
        self.all.get(at)
    }

    /// Acquire: what was registered before is seen.
    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Calls that took something else may take something new now.
    fn forget_all(&self) {
        self.generation.fetch_add(1, Ordering::Release);
    }
}

impl Kept {
    #[inline]
    fn serves(&self, call: &Call<'_>, message: &Message<'_>) -> bool {
        self.key.is_of(call, message.in_place)
            && message.bytes.is_none_or(|bytes| (self.min_bytes..=self.max_bytes).contains(&bytes))
            && self.algorithm.as_deref() == call.algorithm
    }
}

/// Where the ranks run, the same on all of them.
pub(super) struct Surroundings {
    pub(super) world: World,
    /// Blocks that each rank has a processor for.
    room: u32,
    /// Processors that ranks may use, on the host that has the fewest.
    pub(super) cores: u64,
}

pub(super) fn surroundings(comm: &Communicator) -> Surroundings {
    let core = comm.core();
    let peers = core.control().peers();
    let members: Vec<_> = core.members().iter().filter_map(|member| peers.get(*member as usize)).collect();
    let hosts: Vec<u64> = members.iter().map(|peer| peer.host).collect();
    // Processors and ranks of a host.
    let of_host = |host: u64| {
        let here: Vec<_> = members.iter().filter(|peer| peer.host == host).collect();
        let mut masks = vec![0u64; 64];
        for peer in &here {
            masks.iter_mut().zip(peer.processors.mask()).for_each(|(all, mask)| *all |= mask);
        }
        let quota = here.iter().map(|peer| peer.processors.quota().unwrap_or(u64::MAX)).max();
        let processors: u64 = masks.iter().map(|mask| u64::from(mask.count_ones())).sum();
        (processors.min(quota.unwrap_or(u64::MAX) / 1000), here.len().max(1) as u64)
    };
    let all: Vec<(u64, u64)> = hosts.iter().map(|host| of_host(*host)).collect();
    let room = all.iter().map(|(processors, ranks)| processors / ranks).min().unwrap_or(1);
    Surroundings {
        world: World::by_host(&hosts),
        room: room.clamp(1, MAX_ROOM) as u32,
        cores: all.iter().map(|(processors, _)| *processors).min().unwrap_or(0),
    }
}

/// Blocks that a rank gets at most unless the caller asks for more.
const MAX_ROOM: u64 = 8;

// What a call may ask for can be launched.
const _: () = assert!(MOST_BLOCKS <= MAX_BLOCKS);

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
