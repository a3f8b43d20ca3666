#!/bin/sh
# Makes a certificate authority (authority.pem) and a server's certificate (server.pem, server.key), both valid from now on.
# Usage: certificate.sh DIRECTORY ADDRESS DAYS
set -eu
cd "$1"
openssl req -x509 -newkey rsa:2048 -nodes -days "$3" -subj /CN=authority -keyout authority.key -out authority.pem
openssl req -newkey rsa:2048 -nodes -subj /CN=store -keyout server.key -out server.request
echo "subjectAltName=IP:$2" >extensions
openssl x509 -req -in server.request -CA authority.pem -CAkey authority.key -CAcreateserial -days "$3" -extfile extensions \
    -out server.pem
