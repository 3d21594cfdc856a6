//! The executor of one communicator: what its plans share, and how a plan is set up.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use warpway_core::bootstrap::Bootstrap as _;
use warpway_core::communicator::{Communicator, Exchange};
use warpway_core::connection::Connection;
use warpway_core::endpoint::EndpointConfig;
use warpway_core::execution::ExecutionError;
use warpway_core::proxy::{ProxyService, ProxyServiceConfig};
use warpway_core::{Deadline, Error, Result, Timeout};
use warpway_plan::verify::{FoldRoles, ShareableAreas, Sizes, VerifiedPlan};
use warpway_plan::{Action, Collective, Geometry, LayoutError, Operation, Plan, ReduceOp, Repairs, Topology};

use super::TAG;
use super::control::Control;
use super::hosts::Hosts;
use super::identity::{Announced, Identity, called, described};
use super::meeting::meet;
use super::prepared::{Known, PreparedPlan};
use super::record::{Label, LaunchRecord, Step, label};
use super::refusals::Refusals;
use super::repeat::{Launches, Order};
use super::roles::Roles;
use super::rows::RowInboxes;
use super::scratch::{self, Areas};
use super::setup::{self, BlockObjects};
use super::stage::Stages;
use crate::launcher::{Launcher, MAX_BLOCKS};

/// Limits of an executor.
#[derive(Debug, Clone, Copy)]
pub struct ExecutorConfig {
    /// Of each wait in a launch.
    pub device_timeout: Timeout,
    /// Of setting up a plan, and of the set-up steps of a launch.
    pub setup_timeout: Timeout,
    /// Requests that a proxy's FIFO holds, a power of two.
    pub fifo_size: u64,
}

/// What all ranks say alike when they set up a plan.
#[derive(Debug, Clone, Copy, Default)]
pub struct PrepareOptions {
    /// Of plans with sized chunks and scratch: bytes that each chunk of scratch has room for, rounded up to whole
    /// units. Launches with larger ones fail. Default: an equal share of
    /// [`REUSED_SCRATCH_BYTES`](warpway_plan::REUSED_SCRATCH_BYTES), rounded down to a power of two.
    pub scratch_chunk_bytes: Option<u64>,
    /// What the plan is set up for; errors carry its name.
    pub function: Option<&'static str>,
}

/// Sets up and runs plans on the host memory of one communicator. Cheap to clone.
///
/// All ranks make one, set up the same plans in the same order and launch them in the same order; whoever does
/// otherwise is named in an error on the ranks that work with it. Launches of one executor follow each other.
#[derive(Clone)]
pub struct PlanExecutor(Arc<Shared>);

/// What is known of a plan besides what it says.
#[derive(Debug, Clone, Default)]
pub(super) struct Contract {
    pub(super) repairs: Repairs,
    /// For averages; empty without a proof.
    pub(super) fold_roles: FoldRoles,
    /// For which the proof holds; `None` without one.
    pub(super) sizes: Option<Sizes>,
    /// None without a proof.
    pub(super) shareable: ShareableAreas,
    /// Slices of sized pipelines that may share scratch.
    pub(super) reused_slices: ReusedSlices,
}

/// What is known of slices that share scratch.
#[derive(Debug, Clone, Copy, Default)]
pub(super) enum ReusedSlices {
    /// Nothing: without a proof, any number may.
    #[default]
    Unknown,
    /// See [`Report::reused_slices`](warpway_plan::verify::Report::reused_slices).
    Proven(Option<u64>),
}

/// What the plans of a communicator share.
pub(super) struct Shared {
    pub(super) comm: Communicator,
    pub(super) launcher: Launcher,
    pub(super) config: ExecutorConfig,
    pub(super) hosts: Hosts,
    pub(super) control: Control,
    pub(super) refusals: Refusals,
    /// Held while a step, launch or set-up, is under way.
    pub(super) launches: Order,
    /// Used while `launches` is held.
    pub(super) stages: Mutex<Stages>,
    /// As well, and while a plan is set up.
    pub(super) areas: Areas,
    /// Plans set up so far.
    pub(super) plans: AtomicU64,
    connections: Mutex<BTreeMap<u32, Connection>>,
    service: OnceLock<ProxyService>,
}

impl PlanExecutor {
    /// Collective: all ranks call it before they set up the first plan.
    ///
    /// # Errors
    /// Those of the exchange of memories; `unavailable` between hosts without an engine that leads there.
    pub fn new(comm: Communicator, launcher: Launcher, config: ExecutorConfig) -> Result<Self> {
        let hosts = Hosts::of(&comm);
        let refusals = Refusals::new(&comm);
        let control = Control::new(&comm, &hosts, config.setup_timeout.start())?;
        let areas = Areas::new(comm.n_ranks());
        let stages = Mutex::new(Stages::new(hosts.transports()));
        Ok(Self(Arc::new(Shared {
            comm,
            launcher,
            config,
            hosts,
            control,
            refusals,
            launches: Order::default(),
            stages,
            areas,
            plans: AtomicU64::new(0),
            connections: Mutex::default(),
            service: OnceLock::new(),
        })))
    }

    /// Sets up a plan that has been verified, and what its repairs need. Collective.
    ///
    /// # Errors
    /// `plan.disagreement`, on all ranks, if they do not set up the same; `plan.refused` for a plan that cannot run
    /// here, such as one for another number of ranks; `plan.other_host` for one whose memory channels join ranks of
    /// different hosts.
    pub fn prepare(&self, plan: &VerifiedPlan) -> Result<PreparedPlan> {
        self.prepare_with(plan, PrepareOptions::default())
    }

    /// The same with options, which all ranks have in common.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare).
    pub fn prepare_with(&self, plan: &VerifiedPlan, options: PrepareOptions) -> Result<PreparedPlan> {
        let report = plan.report();
        let contract = Contract {
            repairs: report.repairs.clone(),
            fold_roles: report.fold_roles.clone(),
            sizes: report.sizes.clone(),
            shareable: report.shareable_areas,
            reused_slices: ReusedSlices::Proven(report.reused_slices),
        };
        self.set_up(plan.plan(), contract, options)
    }

    /// The same for a plan without a proof. It may compute anything, or wait until it is given up; it does not touch
    /// memory outside its buffers. Averages are refused: what enters them where, only the verifier knows.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare).
    pub fn prepare_unverified(&self, plan: &Plan, repairs: &Repairs) -> Result<PreparedPlan> {
        self.prepare_unverified_with(plan, repairs, PrepareOptions::default())
    }

    /// The same with options, which all ranks have in common.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare).
    pub fn prepare_unverified_with(
        &self,
        plan: &Plan,
        repairs: &Repairs,
        options: PrepareOptions,
    ) -> Result<PreparedPlan> {
        self.set_up(plan, Contract { repairs: repairs.clone(), ..Contract::default() }, options)
    }

    fn set_up(&self, plan: &Plan, contract: Contract, options: PrepareOptions) -> Result<PreparedPlan> {
        let shared = &self.0;
        // Set-up and launches are in one order on all ranks.
        let mut order = shared.launches.lock();
        let deadline = shared.config.setup_timeout.start();
        let refused = |why: LayoutError| {
            Error::from(ExecutionError::Refused { plan: plan.name.clone(), why: why.to_string() })
        };
        let geometry = Geometry::new(plan);
        let geometry = match contract.reused_slices {
            ReusedSlices::Unknown => geometry,
            ReusedSlices::Proven(slices) => geometry.with_reused_slices(slices),
        };
        let geometry = geometry.with_scratch_chunk(options.scratch_chunk_bytes).map_err(refused);
        let scratch_chunk = geometry.as_ref().ok().and_then(Geometry::scratch_chunk).unwrap_or(0);
        // What it does not use, it does not share.
        let used = geometry.as_ref().map_or_else(|_| ShareableAreas::default(), scratch::used);
        let shares = ShareableAreas {
            raw: used.raw && contract.shareable.raw,
            packets: used.packets && contract.shareable.packets,
        };
        let identity = Identity::of(plan, &contract.repairs, scratch_chunk, shares);
        let (name, function) = (called(&plan.name, options.function), label(options.function));
        let objects = shared
            .check(plan, &contract)
            .and_then(|()| Ok((geometry?, BlockObjects::new(plan, shared.comm.rank())?)));
        order.sequence += 1;
        meet(shared, order.sequence, (plan, &name), &identity, function)
            .inspect_err(|error| shared.fail(error))?;
        shared.agree((plan, &name), &identity, objects.is_err(), deadline)?;
        let (geometry, objects) = objects?;
        let plan = Arc::new(plan.clone());
        let roles = Roles::of(&plan, shared.comm.rank());
        // Ranks that are told of launches. Whoever uses scratch, or waits at the end, may wait for all.
        let all = used.raw || used.packets || contract.repairs.closing_handshake;
        let told = if all { &roles.others } else { &roles.peers };
        let channels = setup::connect(shared, &Topology::new(&plan), told, deadline)?;
        let inboxes = RowInboxes::exchange(shared, &plan, &roles, deadline)?;
        let scratch = shared.areas.scratch(&geometry, shares, plan.has_scratch_credits());
        let known = Known { plan, name, function, geometry, identity, contract, scratch, roles, inboxes };
        Ok(PreparedPlan::new(Arc::clone(shared), known, channels, objects))
    }
}

impl PlanExecutor {
    /// A call of `function` that this rank refuses before it sets up or launches anything counts as a step, so that other
    /// ranks, which may be waiting for this one, are told who has refused it and why. Where all refuse, all go on.
    pub fn refuse(&self, function: &str, why: &Error) {
        self.0.refuse(&mut self.0.launches.lock(), label(Some(function)), why);
    }
}

impl std::fmt::Debug for PlanExecutor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PlanExecutor").field("comm", &self.0.comm).finish_non_exhaustive()
    }
}

impl Shared {
    /// What can be said of a plan without the other ranks.
    fn check(&self, plan: &Plan, contract: &Contract) -> Result<()> {
        let refused = |why| ExecutionError::Refused { plan: plan.name.clone(), why };
        let (rank, n) = (self.comm.rank(), self.comm.n_ranks());
        if plan.n_ranks() != n {
            return Err(refused(format!(
                "it is made for {} ranks, the communicator has {n}",
                plan.n_ranks()
            ))
            .into());
        }
        if contract.sizes.is_none() && plan.operations().any(|(_, _, operation)| is_average(operation)) {
            let why = "it averages, and only the verifier knows what enters where".to_owned();
            return Err(refused(why).into());
        }
        self.hosts.check(plan)?;
        let topology = Topology::new(plan);
        for (owner, entry) in (0..).zip(&plan.ranks) {
            let channels = topology.rank(owner).map_or(&[][..], |channels| &channels.memory);
            let ports = topology.rank(owner).map_or(&[][..], |channels| &channels.port);
            let links = channels.iter().chain(ports).map(|link| link.peer);
            let buffers = entry.remote_buffers.iter().map(|remote| remote.rank);
            if let Some(peer) = links.chain(buffers).find(|peer| *peer >= n || *peer == owner) {
                return Err(
                    refused(format!("rank {owner} has a channel to, or a buffer of, rank {peer}")).into()
                );
            }
        }
        let blocks = plan.ranks.get(rank as usize).map_or(0, |entry| entry.blocks.len());
        if blocks > MAX_BLOCKS as usize {
            return Err(refused(format!(
                "rank {rank} has {blocks} blocks; {MAX_BLOCKS} can run at the same time"
            ))
            .into());
        }
        Ok(())
    }

    /// An error on every rank unless all set up the same plan and none refuses it.
    fn agree(
        &self,
        (plan, name): (&Plan, &str),
        identity: &Identity,
        refused: bool,
        deadline: Deadline,
    ) -> Result<()> {
        let (rank, n) = (self.comm.rank(), self.comm.n_ranks());
        let own = Announced { identity: *identity, refused, name: described(plan, name) };
        let mut all = vec![0; n as usize * Announced::BYTES];
        let start = rank as usize * Announced::BYTES;
        all[start..start + Announced::BYTES].copy_from_slice(&own.to_bytes());
        self.comm.bootstrap().all_gather(&mut all, Announced::BYTES as u64, deadline)?;
        for (peer, bytes) in (0..).zip(all.chunks_exact(Announced::BYTES)) {
            let there = Announced::from_bytes(bytes);
            if there.identity != *identity {
                let (here, there) = (own.to_string(), format!("sets up {there}"));
                return Err(ExecutionError::Disagreement { rank, peer, here, there }.into());
            }
            if there.refused && !refused {
                let (here, there) = (own.to_string(), "refuses it".to_owned());
                return Err(ExecutionError::Disagreement { rank, peer, here, there }.into());
            }
        }
        Ok(())
    }

    /// Connections to some ranks, made where there are none yet. Both ranks of each call it.
    pub(super) fn connections(&self, peers: &[u32], deadline: Deadline) -> Result<Vec<(u32, Connection)>> {
        let mut made = lock(&self.connections);
        let new = peers.iter().copied().filter(|peer| !made.contains_key(peer));
        let endpoint = |peer| EndpointConfig::cpu(self.hosts.transport_to(peer));
        let pending: Vec<(u32, Exchange<Connection>)> = new
            .map(|peer| Ok((peer, self.comm.connect(endpoint(peer), peer, TAG)?)))
            .collect::<Result<_>>()?;
        for (peer, exchange) in pending {
            let connection = exchange.wait(deadline)?;
            self.control.connect(peer, &connection);
            made.insert(peer, connection);
        }
        Ok(peers.iter().filter_map(|peer| made.get(peer).map(|found| (*peer, found.clone()))).collect())
    }

    /// The proxy of the communicator's plans, started when it is first needed.
    pub(super) fn service(&self) -> Result<ProxyService> {
        if let Some(service) = self.service.get() {
            return Ok(service.clone());
        }
        let mut config = ProxyServiceConfig::new(self.comm.waiter().clone());
        config.proxy.fifo_size = self.config.fifo_size;
        let service = ProxyService::new(config)?;
        service.start_proxy()?;
        Ok(self.service.get_or_init(|| service).clone())
    }

    /// See [`PlanExecutor::refuse`].
    pub(super) fn refuse(&self, order: &mut Launches, function: Label, why: &Error) {
        if self.comm.health().is_failed() {
            return;
        }
        order.sequence += 1;
        let record = LaunchRecord::without_launch(Step::Refused, Collective::Custom, function, [0; 32]);
        let others = self.control.others(self.comm.rank());
        let told: Vec<u32> = others.filter(|rank| self.control.reaches(*rank)).collect();
        // Before the record, which is seen at once.
        self.refusals.refuse(order.sequence, why);
        let announced = self.control.announce(order.sequence, &record.to_words(), &told, &[], false);
        let _ = announced.inspect_err(|error| self.fail(error));
    }

    /// Marks the communicator as failed: this rank has begun what it cannot end, and its peers wait for it.
    pub(super) fn fail(&self, error: &Error) {
        let health = self.comm.health();
        let usage = error.code() == warpway_core::ErrorCode::InvalidUsage;
        let usage = usage || matches!(error, Error::Execution(ExecutionError::Size { .. }));
        let culprit = if usage { Some(health.rank()) } else { error.culprit() };
        health.fail_local("plan", culprit, error.clone());
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_average(operation: &Operation) -> bool {
    let Action::Data(data) = &operation.action else { return false };
    data.fold.as_ref().is_some_and(|fold| fold.op == ReduceOp::Avg)
}
