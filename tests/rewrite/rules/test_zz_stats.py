import collections, atexit, os
from hypothesis import given, settings, HealthCheck, strategies as st
import tests.rewrite.rules.test_exactness_of_paths as t
from tests.rewrite.conftest import *
C=collections.Counter()
N=int(os.environ.get('N','400'))
S=settings(max_examples=N,deadline=None,suppress_health_check=list(HealthCheck),derandomize=False)
def run(kind,rewrite,g):
    import onnx
    r=t.check(rewrite,g)
    for x in set(r): C[kind,x]+=1
    C[kind,'total']+=1
    if not r: C[kind,'nothing']+=1
    if 'batchnorm-to-scale-shift' not in r: C[kind,'clean']+=1
@S
@given(g=t.upstream())
def test_u(rewrite,g): run('up',rewrite,g)
@S
@given(g=t.downstream())
def test_d(rewrite,g): run('down',rewrite,g)
@S
@given(g=t.parallel())
def test_p(rewrite,g): run('par',rewrite,g)
atexit.register(lambda: [print(k,v) for k,v in sorted(C.items())])
