//! What one size of message needs: the kernel's form, its words, pieces in device memory. Worked out once per size.

use std::sync::Arc;

use warpway_core::execution::ExecutionError;
use warpway_core::{Error, Result};
use warpway_plan::{Alias, BufferKind, Form};

use super::check::Checked;
use super::plan::Prepared;
use super::setting::MessageBytes;
use crate::capture::RelaxedCapture;
use crate::gpu::{DeviceArray, Gpu, Keeper};
use crate::module::Kernel;
use crate::plan::LaunchPlaces;

/// Sizes that are kept.
const KEPT: usize = 64;

/// Sizes of a plan, the one used last at the end.
#[derive(Debug, Default)]
pub(super) struct Sizes(Vec<Ready>);

/// One size.
#[derive(Debug)]
pub(super) struct Ready {
    message: MessageBytes,
    /// How the buffers lie in each other; none if they are apart.
    pub(super) alias: Option<Alias>,
    /// The plan alone does not tell ranks that scratch is free: they meet before they begin.
    pub(super) meets: bool,
    pub(super) kernel: Kernel,
    /// The parameter of the last launch.
    pub(super) words: Vec<u64>,
    /// Where in it the addresses of the input and of the output belong.
    pub(super) inputs: Vec<usize>,
    pub(super) outputs: Vec<usize>,
    /// For launches.
    pub(super) keeper: Keeper,
}

/// What a launch keeps until it has ended.
struct Kept {
    _of_plan: Arc<Vec<Keeper>>,
    _kernel: Kernel,
    _listed: Option<DeviceArray<u64>>,
}

impl Sizes {
    /// The size, worked out if it is new.
    ///
    /// # Errors
    /// `plan.launch` for a size that the plan does not take, `gpu.driver`.
    pub(super) fn find(
        &mut self,
        prepared: &Prepared,
        gpu: &Gpu,
        message: MessageBytes,
    ) -> Result<&mut Ready> {
        let last = self.0.len().saturating_sub(1);
        match self.0.iter().rposition(|ready| ready.message == message) {
            Some(at) => self.0[at..].rotate_left(usize::from(at < last)),
            None => {
                let ready = Ready::new(prepared, gpu, message)?;
                if self.0.len() == KEPT {
                    self.0.remove(0);
                }
                self.0.push(ready);
            }
        }
        self.0.last_mut().ok_or(Error::Internal { place: "plan sizes", what: "a size has just been found" })
    }
}

/// Room for lists of pieces, taken while no kernel runs that the driver might wait for.
pub(super) fn reserve(gpu: &Gpu, checked: &Checked) -> Result<()> {
    const BYTES: u64 = 1 << 20;
    let bytes = 8 * checked.list_words as u64;
    gpu.reserve_arrays(bytes, (BYTES / bytes).clamp(4, KEPT as u64) as usize)
}

impl Ready {
    fn new(prepared: &Prepared, gpu: &Gpu, message: MessageBytes) -> Result<Self> {
        // Where others capture: what is done here is no part of it.
        let _relaxed = RelaxedCapture::begin(gpu.context())?;
        let checked = &prepared.checked;
        let usage = |why| prepared.usage(why);
        let layout = checked.layout(message).map_err(usage)?;
        if let Some(bytes) = checked.unproven(&layout) {
            return Err(usage(format!("its proof does not hold for chunks of {bytes} bytes")));
        }
        let (chunk, most) = (layout.scratch_chunk_bytes(), checked.scratch_chunk);
        if chunk > most && checked.has_areas {
            let MessageBytes { input, output } = checked.setting.largest;
            return Err(usage(format!(
                "it needs scratch chunks of {chunk} bytes and has been set up with {most}, for messages of {input} and {output} \
                 bytes: set it up for larger ones"
            )));
        }
        let rows = checked.kernel.rows(&layout).map_err(|why| usage(why.to_string()))?;
        let listed = match &rows.listed {
            // Of a length for which there is room (`reserve`), as a rule.
            Some(list) => {
                let mut list = list.clone();
                list.resize(list.len().next_power_of_two().max(checked.list_words), 0);
                Some(gpu.array(&list)?)
            }
            None => None,
        };
        let kernel = if listed.is_some() { &prepared.kernels.listed } else { &prepared.kernels.fitted };
        let mut bases = Vec::new();
        for (base, reach) in checked.kernel.bases().iter().zip(&rows.reach) {
            let (place, room) = match base.buffer {
                BufferKind::Input => ((0, 0), message.input),
                BufferKind::Output => ((0, 0), message.output),
                BufferKind::Scratch => {
                    let (address, half, bytes) =
                        prepared.scratch.place(base.rank, base.form).unwrap_or_default();
                    ((address, half), bytes)
                }
            };
            if *reach > room {
                return Err(usage(format!(
                    "it touches {reach} bytes of the {:?} of rank {}, which has {room}",
                    base.buffer, base.rank
                )));
            }
            bases.push(place);
        }
        let (barriers, semaphores) = prepared.objects.addresses();
        let places = LaunchPlaces {
            control: gpu.control().address(),
            packet_epoch: prepared.scratch.epoch(Form::Packets),
            raw_epoch: prepared.scratch.epoch(Form::Raw),
            channels: prepared.channels.address(),
            barriers,
            semaphores,
            listed: listed.as_ref().map_or(0, DeviceArray::address),
            bases,
        };
        let kept = Kept { _of_plan: Arc::clone(&prepared.keepers), _kernel: kernel.clone(), _listed: listed };
        Ok(Self {
            message,
            alias: layout.alias(checked.rank),
            meets: checked.meets(&layout),
            kernel: kernel.clone(),
            words: checked.kernel.parameters(&places, &rows),
            inputs: checked.places_of(BufferKind::Input),
            outputs: checked.places_of(BufferKind::Output),
            keeper: Arc::new(kept),
        })
    }
}

impl Prepared {
    /// A launch that the plan does not take.
    pub(super) fn usage(&self, why: String) -> Error {
        let Checked { rank, name, .. } = &self.checked;
        ExecutionError::Launch { rank: *rank, plan: name.clone(), why }.into()
    }
}
