# The bridge: `docker build -t tierberg .`
# Projections, with Spark and Java: `docker build --target repartition -t tierberg-repartition .`
# Both run as a user without rights, on a read-only root file system; they need a writable /data (or an object store and a
# catalog in /etc/tierberg/tierberg.yaml) and a tmpfs on /tmp.
FROM python:3.12.12-slim-bookworm AS build
ENV UV_LINK_MODE=copy UV_PYTHON_DOWNLOADS=never UV_COMPILE_BYTECODE=1 UV_PROJECT_ENVIRONMENT=/opt/tierberg/venv
RUN pip install --no-cache-dir uv==0.13.8
WORKDIR /src
COPY pyproject.toml hatch_build.py uv.lock README.md LICENSE ./
RUN uv sync --locked --no-dev --no-install-project --extra typed --extra postgres --extra aws
COPY converter converter
COPY iceberg_catalog iceberg_catalog
COPY rsm_bridge rsm_bridge
COPY repartition repartition
COPY tierberg tierberg
RUN uv sync --locked --no-dev --no-editable --extra typed --extra postgres --extra aws
# Kernels are compiled once here; a start then takes half a second. numba asks for the time of its sources to the nanosecond,
# and an image that went through a registry has whole seconds.
RUN find /opt/tierberg/venv -path '*/converter/*' -name '*.py' -exec sh -c 'touch -d "@$(stat -c %Y "$1")" "$1"' _ {} \;
RUN NUMBA_CACHE_DIR=/opt/tierberg/numba NUMBA_CPU_NAME=generic /opt/tierberg/venv/bin/python -c "from converter.segment.warmup import warm; from converter.values.proof.warmup import warm_values; warm(); warm_values()"

FROM build AS build-repartition
RUN uv sync --locked --no-dev --no-editable --extra typed --extra postgres --extra aws --extra repartition

FROM python:3.12.12-slim-bookworm AS repartition
RUN apt-get update && apt-get install -y --no-install-recommends openjdk-17-jre-headless && rm -rf /var/lib/apt/lists/*
RUN useradd --system --uid 10001 --home-dir /data --shell /usr/sbin/nologin tierberg \
    && install -d -o tierberg -g tierberg /data
COPY --from=build-repartition /opt/tierberg /opt/tierberg
ENV PATH=/opt/tierberg/venv/bin:$PATH PYSPARK_PYTHON=/opt/tierberg/venv/bin/python \
    NUMBA_CACHE_DIR=/tmp/numba NUMBA_CPU_NAME=generic PYTHONUNBUFFERED=1
USER 10001:10001
VOLUME /data
STOPSIGNAL SIGTERM
CMD ["tierberg", "repartition", "--all", "--continuous", "--config", "/etc/tierberg/tierberg.yaml"]

FROM python:3.12.12-slim-bookworm
RUN useradd --system --uid 10001 --home-dir /data --shell /usr/sbin/nologin tierberg \
    && install -d -o tierberg -g tierberg /data
COPY --from=build /opt/tierberg /opt/tierberg
# numba wants to write beside what it reads, so the compiled kernels are copied to the tmpfs at start.
ENV PATH=/opt/tierberg/venv/bin:$PATH NUMBA_CACHE_DIR=/tmp/numba NUMBA_CPU_NAME=generic PYTHONUNBUFFERED=1
USER 10001:10001
VOLUME /data
EXPOSE 7410
STOPSIGNAL SIGTERM
ENTRYPOINT ["/bin/sh", "-c", "cp -R /opt/tierberg/numba /tmp/ && exec tierberg \"$@\"", "tierberg"]
CMD ["serve", "--data-dir", "/data", "--listen", "127.0.0.1:7410"]
