# A model behind HTTP: docs/recipes/docker.md says how to build it and run it.
ARG PYTHON=3.11

FROM python:${PYTHON}-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY src src
# Every package, those that build ours included, has the version that the suite is run with.
ENV PIP_CONSTRAINT=/source/constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/bayesmf && /opt/bayesmf/bin/pip install '.[web]'

FROM python:${PYTHON}-slim
LABEL org.opencontainers.image.title="bayesmf" \
      org.opencontainers.image.description="Bayesian matrix factorization as a service" \
      org.opencontainers.image.licenses="Apache-2.0"
# Compiled code is cached where the user may write: on another processor than that of the build it is
# compiled again, once.
RUN useradd --system --no-create-home --uid 10001 bayesmf \
    && install -d -o bayesmf /var/cache/bayesmf
COPY --from=build /opt/bayesmf /opt/bayesmf
ENV PATH=/opt/bayesmf/bin:$PATH NUMBA_CACHE_DIR=/var/cache/bayesmf PYTHONUNBUFFERED=1
USER 10001
WORKDIR /
# Compile the kernels by the questions that the service asks itself before it is ready.
RUN python -c "from bayesmf import BayesianMF, Synthetic; \
from bayesmf.web.served import serve_model, try_out; \
ratings = Synthetic(60, 40, 1200, stars=True).ratings(); \
model = BayesianMF(random_state=0, progress=False).fit(ratings); \
try_out(serve_model(model, None, 'tiny', 'tiny'))"
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s CMD ["python", "-c", \
    "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/healthz', timeout=4).read()"]
ENTRYPOINT ["bayesmf"]
CMD ["serve", "/models/model.bayesmf", "--host", "0.0.0.0", "--port", "8000"]
