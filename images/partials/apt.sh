#!/bin/bash
# Installs the Debian packages that a lock pins, from the files in the build context only. It never uses the network.
#
#   apt.sh install FOLDER NAME...   installs every package in FOLDER: the requested NAMEs and their dependencies
#   apt.sh listed FILE FOLDER...    installs the packages in the FOLDERs whose names FILE lists, one per line
#
# Each FOLDER has a file SHA256SUMS with the hashes from the lock. apt-get is given no sources, so the build fails if the lock
# lacks a package. Caches and lists go to /tmp and logs are removed, because none of them belongs in an image.
set -eu -o pipefail

export DEBIAN_FRONTEND=noninteractive
readonly apt=(
  -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts=/dev/null
  -o Dir::State::Lists=/tmp/apt-lists -o Dir::Cache=/tmp/apt-cache
  -o APT::Sandbox::User=root
)

mkdir -p /tmp/apt-lists/partial /tmp/apt-cache/archives/partial

installed() {
  dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' | awk '$1 == "ii" {print $2}' | sort
}

check() {
  (cd "$1" && sha256sum --check --strict --quiet SHA256SUMS)
}

# Makes Java's keystore of certificates reproducible. Each entry holds the time of its creation, the order of the entries
# varies, and a hash of everything ends the file (format JKS: see sun.security.provider.JavaKeyStore). Set the times to 0; sort
# the entries by name.
settle_keystore() {
  perl -e '
    use strict; my ($file, $scratch) = @ARGV; local $/;
    open my $in, "<:raw", $file or die; my $data = <$in>; my $at = 12;
    exit 0 if length $data < 32 or unpack("N", $data) != 0xFEEDFEED;
    my $take = sub { my $part = substr($data, $at, $_[0]); exit 0 if length $part < $_[0]; $at += $_[0]; $part };
    my %entries;
    for (1 .. unpack("N", substr($data, 8, 4))) {
      my $kind = $take->(4); exit 0 if unpack("N", $kind) != 2;
      my $size = $take->(2); my $name = $take->(unpack("n", $size)); $take->(8);
      $entries{$name} = $kind . $size . $name . "\0" x 8;
      $size = $take->(2); $entries{$name} .= $size . $take->(unpack("n", $size));
      $size = $take->(4); $entries{$name} .= $size . $take->(unpack("N", $size));
    }
    my $settled = join("", substr($data, 0, 12), map { $entries{$_} } sort keys %entries);
    open my $out, ">:raw", $scratch or die;
    print $out join("", map { "\0$_" } split(//, "changeit")), "Mighty Aphrodite", $settled; close $out or die;
    my $hash = substr(qx(sha1sum < \Q$scratch\E), 0, 40);
    open $out, ">:raw", $file or die; print $out $settled, pack("H*", $hash); close $out or die;
  ' "$1" /tmp/keystore
}

case "$1" in
  install)
    folder=$2
    shift 2
    check "${folder}"
    printf '%s\n' "${@%%=*}" | sort > /tmp/apt-asked
    installed > /tmp/apt-before
    apt-get "${apt[@]}" install -y --no-install-recommends --no-remove "${folder}"/*.deb
    # Mark the dependencies as automatically installed, so that `apt-get autoremove` can remove them later.
    installed | comm -13 /tmp/apt-before - | comm -23 - /tmp/apt-asked > /tmp/apt-others
    if [[ -s /tmp/apt-others ]]; then
      xargs -a /tmp/apt-others apt-mark "${apt[@]}" auto > /dev/null
    fi
    ;;
  listed)
    list=$2
    shift 2
    chosen=()
    for folder in "$@"; do
      check "${folder}"
      for file in "${folder}"/*.deb; do
        name=${file##*/}
        if grep -qxF "${name%%_*}" "${list}"; then
          chosen+=("${file}")
        fi
      done
    done
    if [[ ${#chosen[@]} -gt 0 ]]; then
      apt-get "${apt[@]}" install -y --no-install-recommends --no-remove "${chosen[@]}"
    fi
    ;;
  *)
    echo "apt.sh: unknown command $1" >&2
    exit 2
    ;;
esac
# Each installation of Java generates a different keystore and a different archive of loaded classes. Java also starts without
# the latter.
if [[ /etc/ssl/certs/java/cacerts -nt /dev/shm/envbuild/before ]]; then
  settle_keystore /etc/ssl/certs/java/cacerts
fi
if [[ -d /usr/lib/jvm && -e /dev/shm/envbuild/before ]]; then
  find /usr/lib/jvm -name 'classes*.jsa' -newer /dev/shm/envbuild/before -delete
fi
rm -rf /var/log/apt/* /var/log/*.log /var/cache/ldconfig/aux-cache /var/cache/debconf/*-old /var/lib/dpkg/*-old
