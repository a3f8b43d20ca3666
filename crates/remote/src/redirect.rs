//! Which redirects are followed: a server must not lead from TLS to plain HTTP, nor into a network that it is not part of itself.
//! Addresses of this machine's networks, and of the metadata service of its cloud, are not the server's to name.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;
use url::{Host, Url};

/// Setting that allows every redirect: `any`.
const SETTING: &str = "PAGEHAUL_REDIRECTS";
/// Metadata services of clouds whose addresses are not link-local: Amazon's by IPv6, Alibaba's, Oracle's.
const METADATA: [IpAddr; 3] = [
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
];

/// From where an address can be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
enum Scope {
    /// Everywhere.
    Public,
    /// A network of an organization: RFC 1918, 4193, 6598.
    Private,
    Machine,
    /// The link, and the metadata service of a cloud.
    Link,
}

impl Scope {
    fn of(address: IpAddr) -> Self {
        let v4 = match address {
            IpAddr::V4(v4) => Some(v4),
            IpAddr::V6(v6) => embedded(v6),
        };
        if METADATA.contains(&address) || v4.is_some_and(|v4| METADATA.contains(&v4.into())) {
            return Self::Link;
        }
        match (v4, address) {
            (Some(v4), _) => match v4.octets() {
                [0 | 127, ..] => Self::Machine,
                [169, 254, ..] | [224..=255, ..] => Self::Link,
                [10, ..] | [172, 16..=31, ..] | [192, 168, ..] | [100, 64..=127, ..] | [198, 18..=19, ..] => {
                    Self::Private
                }
                _ => Self::Public,
            },
            (None, IpAddr::V6(v6)) => match v6.segments()[0] {
                _ if v6.is_loopback() || v6.is_unspecified() => Self::Machine,
                0xfe80..=0xfebf | 0xff00.. => Self::Link,
                0xfc00..=0xfdff | 0xfec0..=0xfeff => Self::Private,
                _ => Self::Public,
            },
            (None, IpAddr::V4(_)) => Self::Public,
        }
    }

    /// The scope of a host as it is written. Names are resolved later.
    fn of_host(host: &Host<&str>) -> Self {
        match host {
            Host::Ipv4(address) => Self::of((*address).into()),
            Host::Ipv6(address) => Self::of((*address).into()),
            Host::Domain(name) if *name == "localhost" || name.ends_with(".localhost") => Self::Machine,
            Host::Domain(_) => Self::Public,
        }
    }
}

/// The IPv4 address that an IPv6 address leads to: mapped, NAT64 (RFC 6052), 6to4 (RFC 3056).
fn embedded(v6: Ipv6Addr) -> Option<Ipv4Addr> {
    let [a, b, c, d, e, f, g, h] = v6.segments();
    let join = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match (a, b) {
        (0x2002, _) => Some(join(b, c)),
        (0x64, 0xff9b) if [c, d, e, f] == [0; 4] => Some(join(g, h)),
        _ => v6.to_ipv4_mapped(),
    }
}

/// Which redirects of a URL are followed.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    any: bool,
    /// The narrowest [`Scope`] among the addresses of the URL's host. Until it has any, and where a proxy resolves names, it is
    /// public.
    scope: Arc<AtomicU8>,
}

impl Rules {
    /// As the environment sets them.
    pub(crate) fn new() -> Self {
        let any = std::env::var(SETTING).is_ok_and(|value| value == "any");
        Self { any, scope: Arc::default() }
    }

    /// Whether an address or a host of this scope may be gone to.
    fn allow(&self, scope: Scope) -> bool {
        self.any || scope as u8 <= self.scope.load(Ordering::Relaxed)
    }

    /// Returns where a redirect of `from` leads, or why it is not followed. Names are checked once more by the [`Addresses`] that
    /// they have.
    pub(crate) fn follow(&self, from: &str, location: &str) -> Result<String, String> {
        let base = Url::parse(from).map_err(|_| "the URL is not valid".to_owned())?;
        let to = base.join(location).map_err(|_| "the server redirects to what is not a URL".to_owned())?;
        let Some(host) = to.host().filter(|_| matches!(to.scheme(), "http" | "https")) else {
            return Err("the server redirects to what is not a web server".to_owned());
        };
        // The path may hold a secret.
        let named = format!("the server redirects to {}://{host}", to.scheme());
        if !to.username().is_empty() || to.password().is_some() {
            return Err(format!("{named} with a user name"));
        }
        if !self.any && base.scheme() == "https" && to.scheme() == "http" {
            return Err(format!("{named}, without TLS; name that URL, or set {SETTING}=any"));
        }
        if base.host() != to.host() && !self.allow(Scope::of_host(&host)) {
            return Err(refusal(&host.to_string()));
        }
        Ok(to.into())
    }
}

fn refusal(host: &str) -> String {
    format!(
        "the server redirects to {host}, an address of a private network; name that URL, or set {SETTING}=any"
    )
}

/// Why a redirect is not followed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Refused(String);

/// Resolves names. Hosts other than the one of the URL have only addresses that the rules allow.
#[derive(Debug)]
pub(crate) struct Addresses {
    resolver: DefaultResolver,
    /// The host of the URL.
    host: Option<String>,
    rules: Rules,
}

impl Addresses {
    /// For requests of a URL and of those that it redirects to.
    pub(crate) fn of(url: &str, rules: &Rules) -> Self {
        let host = url.parse::<Uri>().ok().and_then(|uri| uri.host().map(str::to_owned));
        Self { resolver: DefaultResolver::default(), host, rules: rules.clone() }
    }
}

impl Resolver for Addresses {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let all = self.resolver.resolve(uri, config, timeout)?;
        let scope = |address: &SocketAddr| Scope::of(address.ip());
        if uri.host() == self.host.as_deref() {
            let narrowest = all.iter().map(scope).max().unwrap_or(Scope::Public);
            self.rules.scope.fetch_max(narrowest as u8, Ordering::Relaxed);
            return Ok(all);
        }
        let mut allowed = self.empty();
        let is_allowed = |address: &&SocketAddr| self.rules.allow(scope(address));
        all.iter().filter(is_allowed).for_each(|address| allowed.push(*address));
        if allowed.is_empty() {
            let refused = Refused(refusal(uri.host().unwrap_or_default()));
            return Err(ureq::Error::Other(Box::new(refused)));
        }
        Ok(allowed)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn addresses_have_scopes() {
        for (scope, addresses) in [
            (Scope::Public, &["8.8.8.8", "172.32.0.1", "100.63.0.1", "2001:db8::1", "2002:808:808::"][..]),
            (
                Scope::Private,
                &["10.0.2.2", "172.16.0.1", "192.168.1.1", "100.64.0.1", "fd00::1", "::ffff:10.0.0.1"],
            ),
            (Scope::Machine, &["127.0.0.1", "0.0.0.0", "::1", "::", "::ffff:127.0.0.1", "2002:7f00:1::"]),
            (
                Scope::Link,
                &[
                    "169.254.169.254",
                    "fe80::1",
                    "64:ff9b::a9fe:a9fe",
                    "::ffff:169.254.0.1",
                    "fd00:ec2::254",
                    "100.100.100.200",
                ],
            ),
        ] {
            for address in addresses {
                assert_eq!(Scope::of(address.parse().unwrap()), scope, "{address}");
            }
        }
    }

    fn rules(any: bool, scope: Scope) -> Rules {
        Rules { any, scope: Arc::new(AtomicU8::new(scope as u8)) }
    }

    #[test]
    fn redirects_to_weaker_places_are_refused() {
        use Scope::{Machine, Private, Public};
        for (scope, from, location, allowed) in [
            (Public, "https://a.example/x", "https://b.example/y", true),
            (Public, "https://a.example/x", "/y?z", true),
            (Public, "http://a.example/x", "https://b.example/y", true),
            (Public, "http://a.example/x", "//b.example/y", true),
            (Public, "https://a.example/x", "http://b.example/y", false),
            (Public, "https://a.example/x", "https://10.0.0.1/y", false),
            (Public, "http://a.example/x", "http://169.254.169.254/latest/meta-data/", false),
            (Public, "http://a.example/x", "http://[::1]/", false),
            (Public, "http://a.example/x", "http://2130706433/", false),
            (Public, "http://a.example/x", "http://LOCALHOST/", false),
            (Private, "http://files.corp/x", "http://10.0.0.2/", true),
            (Private, "http://files.corp/x", "http://169.254.169.254/", false),
            (Machine, "http://127.0.0.1/x", "http://127.0.0.2:8080/", true),
            (Machine, "http://127.0.0.1/x", "http://169.254.169.254/", false),
        ] {
            let followed = rules(false, scope).follow(from, location);
            assert_eq!(followed.is_ok(), allowed, "{from} {location}");
            assert!(rules(true, scope).follow(from, location).is_ok(), "{from} {location}");
        }
        for location in
            ["file:///etc/passwd", "ftp://a.example/", "https://user:secret@a.example/", "http://"]
        {
            let refused = rules(true, Public).follow("http://a.example/", location).unwrap_err();
            assert!(!refused.contains("secret"), "{refused}");
        }
    }

    #[test]
    fn names_have_the_addresses_that_are_allowed() {
        let config = ureq::Agent::config_builder().build();
        let resolve = |scope, url: &str, of: &str| {
            let timeout = NextTimeout::default();
            let rules = rules(false, scope);
            let found = Addresses::of(url, &rules).resolve(&of.parse().unwrap(), &config, timeout);
            (found.is_ok(), rules.scope.load(Ordering::Relaxed))
        };
        let local = "http://localhost/";
        assert_eq!(resolve(Scope::Public, "http://a.example/", local), (false, Scope::Public as u8));
        assert_eq!(resolve(Scope::Machine, "http://a.example/", local), (true, Scope::Machine as u8));
        assert_eq!(resolve(Scope::Public, local, local), (true, Scope::Machine as u8));
    }

    proptest! {
        #[test]
        fn any_location_is_followed_or_refused(location in "(https?:)?/{0,3}[a-z0-9@:.%/\\[\\]]{0,30}") {
            if let Ok(to) = rules(false, Scope::Public).follow("https://a.example/x", &location) {
                prop_assert!(to.starts_with("https://"));
            }
        }
    }
}
