//! The MTU of new pods, which may change while the agent runs. A configured MTU takes effect once it is known to fit; one that
//! does not fit is refused, and the former one stays in effect.

use tokio::sync::watch;

use crate::options::LiveSettings;

/// The configured MTU and the one in effect.
#[derive(Debug)]
pub(crate) struct PodMtu {
    wanted: watch::Receiver<LiveSettings>,
    current: watch::Sender<u32>,
    /// The configured MTU that was refused last.
    refused: Option<u32>,
}

/// Whether the configured MTU takes effect. The number is the MTU in effect.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum MtuDecision<E> {
    Unchanged(u32),
    Changed(u32),
    /// The configured MTU does not fit, and the former one stays in effect; the reason only the first time.
    Refused(u32, Option<E>),
}

impl PodMtu {
    /// Starts with `before`, the MTU of an earlier agent on this host, so that an MTU that does not fit cannot break a working
    /// node. Without one it starts with the configured MTU; if that does not fit, the node is not ready.
    pub(crate) fn new(wanted: watch::Receiver<LiveSettings>, before: Option<u32>) -> Self {
        let first = before.unwrap_or(wanted.borrow().mtu);
        Self { wanted, current: watch::Sender::new(first), refused: None }
    }

    /// The MTU in effect, as it changes.
    pub(crate) fn current(&self) -> watch::Receiver<u32> {
        self.current.subscribe()
    }

    /// Returns when the setting changes.
    pub(crate) async fn changed(&mut self) {
        if self.wanted.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Checks the configured MTU. The error says why neither that nor the one in effect fits.
    pub(crate) fn decide<E>(&mut self, fits: impl Fn(u32) -> Result<(), E>) -> Result<MtuDecision<E>, E> {
        let (wanted, before) = (self.wanted.borrow_and_update().mtu, *self.current.borrow());
        match fits(wanted) {
            Ok(()) => {
                self.refused = None;
                self.current.send_replace(wanted);
                Ok(if wanted == before { MtuDecision::Unchanged(wanted) } else { MtuDecision::Changed(wanted) })
            }
            Err(why) if wanted == before => Err(why),
            Err(why) => {
                fits(before)?;
                let news = self.refused.replace(wanted) != Some(wanted);
                Ok(MtuDecision::Refused(before, news.then_some(why)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_mtu_that_fits_takes_effect_and_another_is_refused_once() {
        let at_most = |most: u32| move |mtu: u32| if mtu <= most { Ok(()) } else { Err(format!("at most {most}")) };
        let live = |mtu| LiveSettings { mtu, error: None };
        let wanted = watch::Sender::new(live(1400));
        let mut mtu = PodMtu::new(wanted.subscribe(), None);
        let current = mtu.current();
        assert_eq!(mtu.decide(at_most(1300)), Err("at most 1300".into()));
        assert_eq!(mtu.decide(at_most(1442)), Ok(MtuDecision::Unchanged(1400)));
        wanted.send_replace(live(1300));
        assert_eq!(mtu.decide(at_most(1442)), Ok(MtuDecision::Changed(1300)));
        assert_eq!(*current.borrow(), 1300);
        wanted.send_replace(live(9000));
        assert_eq!(mtu.decide(at_most(1442)), Ok(MtuDecision::Refused(1300, Some("at most 1442".into()))));
        assert_eq!(mtu.decide(at_most(1442)), Ok(MtuDecision::Refused(1300, None)));
        assert_eq!(*current.borrow(), 1300);
        // The interface has a larger MTU now.
        assert_eq!(mtu.decide(at_most(9100)), Ok(MtuDecision::Changed(9000)));
        assert_eq!(mtu.decide(at_most(1200)), Err("at most 1200".into()));
        // One that does not fit, on a node that works.
        let mut mtu = PodMtu::new(wanted.subscribe(), Some(1300));
        assert_eq!(mtu.decide(at_most(1442)), Ok(MtuDecision::Refused(1300, Some("at most 1442".into()))));
    }
}
