# Prints the memory that is available in the capture kernel, whenever there is less of it than before.
least=999999999
while :; do
    while read -r name value _; do
        if [ "$name" = MemAvailable: ] && [ "$value" -lt $least ]; then
            least=$value
            echo "PHLAB available $value"
        fi
    done </proc/meminfo
    sleep 0.5
done
