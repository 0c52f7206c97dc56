//! Sends raw frames from a sandbox, and shows what comes back.

/// A Perl script that sends frames read as lines of hex, the last of them an ARP request for the gateway; prints all
/// received frames until the gateway replies. The request is repeated. Perl is in every Debian.
pub(crate) const SCRIPT: &str = r#"
    use strict;
    my ($index, $gateway) = @ARGV;
    socket(my $socket, 17, 3, 0x0300) or die "socket: $!";
    bind($socket, pack("S n l S C C a8", 17, 3, $index, 0, 0, 0, "")) or die "bind: $!";
    $| = 1;
    my $last;
    while (my $line = <STDIN>) { chomp $line; $last = pack("H*", $line); defined send($socket, $last, 0) or die "send: $!"; }
    $SIG{ALRM} = sub { die "the gateway does not answer" };
    alarm 60;
    while (1) {
        # A busy switch may lose the request.
        vec(my $ready = "", fileno($socket), 1) = 1;
        if (!select($ready, undef, undef, 2)) { send($socket, $last, 0); next; }
        recv($socket, my $frame, 2048, 0);
        print unpack("H*", $frame), "\n";
        last if unpack("H*", substr($frame, 12, 2)) eq "0806" && unpack("H*", substr($frame, 28, 4)) eq $gateway
            && unpack("n", substr($frame, 20, 2)) == 2;
    }
"#;
