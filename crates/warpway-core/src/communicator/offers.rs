//! Descriptors offered to peers, once per descriptor however many memories lie in it.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, Weak};

use crate::bootstrap::{ControlPlane, DescriptorOffer};
use crate::error::Result;
use crate::health::lock;

/// Shared by a communicator and those it is split into.
#[derive(Default)]
pub(super) struct Offers(Mutex<HashMap<usize, Weak<Offer>>>);

/// Lasts as long as a registration needs it.
pub(super) struct Offer {
    offer: DescriptorOffer,
    /// Keeps the address, which is the key, from being reused.
    _descriptor: Arc<OwnedFd>,
}

impl Offer {
    pub(super) fn number(&self) -> u64 {
        self.offer.descriptor
    }
}

impl Offers {
    pub(super) fn offer(&self, control: &dyn ControlPlane, descriptor: &Arc<OwnedFd>) -> Result<Arc<Offer>> {
        let key = Arc::as_ptr(descriptor) as usize;
        let mut offers = lock(&self.0);
        if let Some(offer) = offers.get(&key).and_then(Weak::upgrade) {
            return Ok(offer);
        }
        let offer = control.offer_descriptor(Arc::clone(descriptor))?;
        let offer = Arc::new(Offer { offer, _descriptor: Arc::clone(descriptor) });
        offers.retain(|_, weak| weak.strong_count() > 0);
        offers.insert(key, Arc::downgrade(&offer));
        Ok(offer)
    }
}
