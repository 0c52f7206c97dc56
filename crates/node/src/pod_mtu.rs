//! The pods' MTU, which may change while the agent runs: what the settings want is in force for new pods once it is known to
//! fit. What does not fit is told, and what was in force before stays.

use tokio::sync::watch;

use crate::options::LiveSettings;

/// What is wanted, and what is in force.
#[derive(Debug)]
pub(crate) struct PodMtu {
    wanted: watch::Receiver<LiveSettings>,
    in_force: watch::Sender<u32>,
    /// What did not fit when it was looked at last.
    refused: Option<u32>,
}

/// What came of a look at what is wanted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// This is in force, as it was.
    AsBefore(u32),
    /// This is in force from now on.
    New(u32),
    /// This stays in force, since what is wanted does not fit; why, if it was not told before.
    Kept(u32, Option<String>),
}

impl PodMtu {
    /// In force is at first what was in force before, as the host shows it, so that a wrong one takes no working node down. On
    /// a node that had none it is what is wanted: if that does not fit, the agent says so and is not ready.
    pub(crate) fn new(wanted: watch::Receiver<LiveSettings>, before: Option<u32>) -> Self {
        let first = before.unwrap_or(wanted.borrow().mtu);
        Self { wanted, in_force: watch::Sender::new(first), refused: None }
    }

    /// What is in force, as it changes.
    pub(crate) fn in_force(&self) -> watch::Receiver<u32> {
        self.in_force.subscribe()
    }

    /// Returns when something else is wanted; never if that cannot be any more.
    pub(crate) async fn changed(&mut self) {
        if self.wanted.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Looks at what is wanted. An error says why neither that nor what is in force fits.
    pub(crate) fn settle(&mut self, fits: impl Fn(u32) -> Result<(), String>) -> Result<Verdict, String> {
        let (wanted, before) = (self.wanted.borrow_and_update().mtu, *self.in_force.borrow());
        match fits(wanted) {
            Ok(()) => {
                self.refused = None;
                self.in_force.send_replace(wanted);
                Ok(if wanted == before { Verdict::AsBefore(wanted) } else { Verdict::New(wanted) })
            }
            Err(why) if wanted == before => Err(why),
            Err(why) => {
                fits(before)?;
                let news = self.refused.replace(wanted) != Some(wanted);
                Ok(Verdict::Kept(before, news.then_some(why)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_in_force_and_what_does_not_is_told_once() {
        let at_most = |most: u32| move |mtu: u32| if mtu <= most { Ok(()) } else { Err(format!("at most {most}")) };
        let live = |mtu| LiveSettings { mtu, problem: None };
        let wanted = watch::Sender::new(live(1400));
        let mut mtu = PodMtu::new(wanted.subscribe(), None);
        let in_force = mtu.in_force();
        assert_eq!(mtu.settle(at_most(1300)), Err("at most 1300".into()));
        assert_eq!(mtu.settle(at_most(1442)), Ok(Verdict::AsBefore(1400)));
        wanted.send_replace(live(1300));
        assert_eq!(mtu.settle(at_most(1442)), Ok(Verdict::New(1300)));
        assert_eq!(*in_force.borrow(), 1300);
        wanted.send_replace(live(9000));
        assert_eq!(mtu.settle(at_most(1442)), Ok(Verdict::Kept(1300, Some("at most 1442".into()))));
        assert_eq!(mtu.settle(at_most(1442)), Ok(Verdict::Kept(1300, None)));
        assert_eq!(*in_force.borrow(), 1300);
        // The interface was given a larger one: now it fits.
        assert_eq!(mtu.settle(at_most(9100)), Ok(Verdict::New(9000)));
        assert_eq!(mtu.settle(at_most(1200)), Err("at most 1200".into()));
        // A wrong one over a node that works.
        let mut mtu = PodMtu::new(wanted.subscribe(), Some(1300));
        assert_eq!(mtu.settle(at_most(1442)), Ok(Verdict::Kept(1300, Some("at most 1442".into()))));
    }
}
